"""Message passing, graph attention, encodings and pooling."""
