"""The web application in front of many nodes."""
