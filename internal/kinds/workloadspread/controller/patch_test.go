package controller

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
)

// What panics while a pod is prepared fails that request; those that come later get the lock.
func TestNoPanicKeepsTheLock(t *testing.T) {
	spread := workloadspreadtest.Read(t, `{spec: {subsets: [{name: a, maxReplicas: 2}, {name: b}]}}`)
	server := newBookServer(t, spread)
	booker := NewBooker(server, server, func(types.NamespacedName) *appsv1beta1.WorkloadSpread { return nil }, nil, logr.Discard(),
		time.Now)
	func() {
		defer func() { _ = recover() }()
		_, _ = booker.Create(t.Context(), spread, workloadspread.Creation{Key: "one", Version: "v"},
			func(workloadspread.Decision) error { panic("odd") })
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if decision, err := booker.Create(ctx, spread, workloadspread.Creation{Key: "two", Version: "v"},
		func(workloadspread.Decision) error { return nil }); err != nil ||
		!decision.Booked {
		t.Errorf("%+v, %v", decision, err)
	}
}
