module whywait.invalid/labs/open-requests/go

go 1.21
