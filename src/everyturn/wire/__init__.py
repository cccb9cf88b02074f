"""What providers and clients say: bytes in, values out. Sans-IO; nothing here waits."""
