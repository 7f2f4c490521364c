package framework

import (
	"gomodules.xyz/jsonpatch/v2"

	"github.com/afloat-project/afloat/internal/engine/jsondiff"
)

// PatchBetween returns the changes that turn one document into the other.
func PatchBetween(before, after []byte) ([]jsonpatch.Operation, error) {
	from, err := DecodeDocument(before)
	if err != nil {
		return nil, err
	}
	to, err := DecodeDocument(after)
	if err != nil {
		return nil, err
	}
	return jsondiff.Between(from, to, jsondiff.Shallow), nil
}
