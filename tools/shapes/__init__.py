"""What `real_shapes.py` is made of."""
