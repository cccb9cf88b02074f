"""What a gateway and a worker say to each other. Sans-IO: bytes in, values out, no clock."""
