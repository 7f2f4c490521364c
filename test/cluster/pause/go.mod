module github.com/afloat-project/afloat/test/cluster/pause

go 1.26.0
