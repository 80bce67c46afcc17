"""Where the weights that training starts from come from, beside other runs."""
