"""Why does it not run, who can change that, when will it start?"""
