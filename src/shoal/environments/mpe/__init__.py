"""The nine multi-agent particle environments (Lowe et al. 2017; Mordatch and Abbeel 2018), one file each.

The registry imports their ``make``; grid worlds also use their pictures' colours and sizes.
"""
