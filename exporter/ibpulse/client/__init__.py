"""A running daemon as others ask it over HTTP. It must not know what the answers are for.

connection  requests on one connection that is kept, with the errors as sentences
answers     what the daemon says, as checked values
"""
