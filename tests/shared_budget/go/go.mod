module polylimit-shared-budget

go 1.25

require polylimit v0.0.0

replace polylimit => ../../../bindings/go
