"""The web page: a photograph in, its captions and where the model looked for every word."""
