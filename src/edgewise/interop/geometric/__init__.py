"""PyTorch Geometric's layers and loaders."""
