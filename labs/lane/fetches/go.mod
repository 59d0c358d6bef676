module fetches

go 1.19
