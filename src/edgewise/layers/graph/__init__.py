"""Message passing, graph attention and encodings of graphs."""
