"""The pure model: occupancy, waves and schedule, the work of a CTA, launch time, split rules, ranking.

Functions of frozen values: no file, no process, no console. May import `gpu` and `errors`; every floor above may
import it.
"""
