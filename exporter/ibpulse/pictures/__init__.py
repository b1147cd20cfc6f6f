"""Recordings as pictures: heatmap, animation, distribution.

options           what is asked of a picture, and which files each kind can be written to
run               what is drawn of one recording
theme, panels     colours, sizes, and the parts that several pictures share
heatmap, distribution               the still pictures
animation, animation_layout, frames the moving one
render, files     a picture of a kind into its file
"""
