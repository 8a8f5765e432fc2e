"""The way of a flow: requests to the server, replies to the client, follow-up requests, lent keys."""
