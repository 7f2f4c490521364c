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

// gracefulStop limits how long controllers and requests in progress may take to end. After that the lease is
// released, even if one of them hangs.
const gracefulStop = 10 * time.Second

// endWithin makes the manager release its lease when its runnables have ended, or after grace.
func endWithin(grace time.Duration, options *ctrl.Options) {
	options.GracefulShutdownTimeout, options.LeaderElectionReleaseOnCancel = &grace, true
}

// start runs the manager until ctx ends. controller-runtime does not end, and keeps a core busy, while caches are not read
// that a manager reads first; read is closed when they are. Until then no controller works and no lease is held, so that
// there is nothing to wait for.
func start(ctx context.Context, mgr ctrl.Manager, read <-chan struct{}) error {
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}

	select {
	case <-read:
		return <-ended
	case err := <-ended:
		return err
	default:
		klog.FromContext(ctx).Info("The manager ends before it has read what it needs")
		return nil
	}
}

// shutdown keeps the manager running for a while after the termination signal. The API server continues to
// call the webhooks of this replica until it learns that the replica is terminating, and rejects requests if
// there is no response. During this time the replica is not ready, but everything else continues: caches are
// updated, and the leader stays the leader.
type shutdown struct {
	signal  context.Context
	delay   time.Duration
	serving atomic.Bool
	// all reports whether all replicas are terminating, so that callers have no other replica and there is no
	// reason to wait. It is set before serving.
	all func(context.Context) bool
}

// context returns the context of the manager. It is canceled by the signal if nothing is served yet, or else
// when the delay after the signal is over.
func (s *shutdown) context() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.signal))
	stop := context.AfterFunc(s.signal, func() {
		if s.serving.Load() && s.delay > 0 && !s.all(ctx) {
			klog.FromContext(ctx).Info(
				"The manager is asked to end and goes on for a while, until it is not called any more",
				"for", s.delay)
			select {
			case <-time.After(s.delay):
			case <-ctx.Done():
			}
		}
		cancel()
	})

	return ctx, func() { stop(); cancel() }
}

// noneStays returns a function that reports whether the manager's Deployment is scaled to zero. It returns
// false if the Deployment cannot be read.
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
