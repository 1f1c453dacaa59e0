"""Texts: table files and public sets; tokenizer, cache, batches of equal lengths, predictions."""
