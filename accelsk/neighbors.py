"""`sklearn.neighbors`, with classes that try the GPU first."""
from accelsk._mirror import mirror
__all__, __getattr__, __dir__ = mirror(__name__)
