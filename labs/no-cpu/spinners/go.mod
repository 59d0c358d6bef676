module spinners

go 1.19
