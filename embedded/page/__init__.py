"""The page of `./dev status --web`: a service's replicas, queue, latency and events, live.

`server.py` answers, `snapshot.py` says what is shown, `page.js` shows it, `chart.js` draws curves.
"""
