package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A NodeImage that has grown too large for the store comes after the others, as one that refuses for another
// reason.
func TestTooLargeIsRefused(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	var r refusals
	r.took("n", fmt.Errorf("patching: %w", apierrors.NewInternalError(errors.New("etcdserver: request is too large"))), noon)
	r.took("busy", apierrors.NewInternalError(errors.New("etcdserver: request timed out")), noon)
	r.took("n", apierrors.NewForbidden(schema.GroupResource{}, "n", errors.New("by a policy")), noon.Add(time.Hour))
	if diff := cmp.Diff(refusals{"n": noon}, r); diff != "" {
		t.Error(diff)
	}
}
