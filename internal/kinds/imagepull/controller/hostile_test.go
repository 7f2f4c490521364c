package controller

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// A NodeImage that has grown too large for the store comes after the others, as one that refuses for another reason.
func TestTooLargeIsRefused(t *testing.T) {
	var r refusals
	r.took("n", fmt.Errorf("patching: %w", apierrors.NewInternalError(errors.New("etcdserver: request is too large"))))
	r.took("busy", apierrors.NewInternalError(errors.New("etcdserver: request timed out")))
	if !r["n"] || r["busy"] {
		t.Errorf("%v", r)
	}
}
