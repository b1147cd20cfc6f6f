"""Recordings to pictures: heatmap, animation, distribution. It must not open a recording, nor compute its statistics.

libraries     matplotlib and pillow, or what to install
options       what is asked of a picture, and which files each kind can be written to
run           what is drawn of one recording
columns       many ticks to few columns, by their highest and their mean
scale         the unit and the one scale that all runs of a picture share
theme         colours and sizes
captions      what a picture says of its recordings
panels        the parts that several pictures share
heatmap, distribution   the still pictures
stage         the parts of an animation that stand still, and where the others go
frames        the frames of an animation
movie, player an animation as GIF or MP4, and as a page
files         a picture into its file
"""
