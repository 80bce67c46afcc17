"""What C++ makes of messages: networks on edges, activations of both ends, tensor products."""
