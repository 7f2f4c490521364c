package main

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// gracefulStop is how long controllers and requests under way may take to end. Then the lease is released,
// also if one of them hangs.
const gracefulStop = 10 * time.Second

// endWithin makes the manager release its lease when its runnables have ended, or after grace.
func endWithin(grace time.Duration, options *ctrl.Options) {
	options.GracefulShutdownTimeout, options.LeaderElectionReleaseOnCancel = &grace, true
}

// shutdown keeps the manager running for a while after the signal to end. The API server calls its webhooks
// until it knows that this replica ends, and refuses requests without an answer. In this time the replica is
// not ready, but everything else goes on: caches are current, and the leader still leads.
type shutdown struct {
	signal  context.Context
	delay   time.Duration
	serving atomic.Bool
	// all tells whether all replicas are to end, so that there is none for callers to go to and nothing to
	// wait for. It is set before serving.
	all func(context.Context) bool
}

// context returns the context of the manager. It ends at the signal if nothing is served yet, otherwise when
// the delay after the signal is over.
func (s *shutdown) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.signal))
	stop := context.AfterFunc(s.signal, func() {
		if s.serving.Load() && s.delay > 0 && !s.all(ctx) {
			klog.FromContext(ctx).Info(
				"The manager is asked to end and goes on for a while, until it is not called any more", "for",
				s.delay)
			select {
			case <-time.After(s.delay):
			case <-ctx.Done():
			}
		}
		cancel()
	})

	return ctx, func() { stop(); cancel() }
}

// noneStays returns a function that tells whether the manager's Deployment is to have no replicas. If that
// cannot be read, it is not known.
func noneStays(reader client.Reader, namespace string) func(context.Context) bool {
	return func(ctx context.Context) bool {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		var deployment appsv1.Deployment
		err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: managerDeployment}, &deployment)
		return err == nil && deployment.Spec.Replicas != nil && *deployment.Spec.Replicas == 0
	}
}

// ready is the readiness check "shutdown".
func (s *shutdown) ready(*http.Request) error {
	if s.signal.Err() != nil {
		return errors.New("the manager was asked to end")
	}
	return nil
}
