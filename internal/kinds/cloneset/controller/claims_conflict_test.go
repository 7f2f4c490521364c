package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

// TestAClaimThatIsWrittenWhileItIsDeleted: a pod could not be created, and its claim is to go
// (CS-046 (part)). The volume controller has written to the claim, which the cache does not show yet. That is
// no failure to tell anybody of; the claim goes as soon as the cache shows it.
func TestAClaimThatIsWrittenWhileItIsDeleted(t *testing.T) {
	s := simulate(1, clonesettest.Set(1, clonesettest.Claims("1Gi"), withoutReuse), cloneset.Features{})
	s.Answer = func(r *simulation.Request) error {
		if r.Verb == "create" && r.Key.Kind == "Pod" {
			return apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("over quota"))
		}
		return nil
	}
	s.Deliver(1 << 20)
	if _, _, err := s.Once(); err == nil {
		t.Fatal("a pod that is refused: want an error")
	}
	if n := len(s.List("PersistentVolumeClaim", false)); n != 1 {
		t.Fatalf("claims without a pod: got %d, want 1", n)
	}
	s.Deliver(1 << 20)
	first := s.List("PersistentVolumeClaim", false)[0]
	s.Change(claimKey(first.GetName()), func(o client.Object) {
		o.SetAnnotations(map[string]string{"volume.kubernetes.io/selected-node": "node"})
	})
	s.Pass(time.Minute)
	_, outcome, _ := s.Once()
	if outcome.After == 0 {
		t.Errorf("time to the next pass: got %v, want another value", outcome.After)
	}
	if outcome.After > reconcile.RetryAfter {
		t.Errorf("time to the next pass: got %v, want at most %v", outcome.After, reconcile.RetryAfter)
	}
	told := func(what string) bool {
		return slices.ContainsFunc(s.Recorded, func(event string) bool { return strings.Contains(event, what) })
	}
	if told("FailedDelete") {
		t.Errorf("events: %q", s.Recorded)
	}
	s.Deliver(1 << 20)
	_, _, _ = s.Once()
	if !told("deleted claim") {
		t.Errorf("events: got %q, want the deleted claim", s.Recorded)
	}
	if slices.ContainsFunc(s.List("PersistentVolumeClaim", false),
		func(claim client.Object) bool { return claim.GetUID() == first.GetUID() }) {
		t.Errorf("the claim stays: %q", s.Recorded)
	}
}
