package main

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// OPS-101: at SIGTERM the manager is not ready any more, and goes on for the delay while Services still lead to it. Without one, and before it
// serves anything, it ends at once.
func TestTheManagerOutlastsTheSignalWhileItIsStillCalled(t *testing.T) {
	for name, test := range map[string]struct {
		delay   time.Duration
		serving bool
		want    time.Duration
	}{
		"serving":               {10 * time.Second, true, 10 * time.Second},
		"serving, no delay":     {0, true, 0},
		"before it has started": {10 * time.Second, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signal, term := context.WithCancel(t.Context())
				defer term()
				s := &shutdown{signal: signal, delay: test.delay}
				ctx, cancel := s.context()
				defer cancel()
				s.serving.Store(test.serving)
				time.Sleep(time.Hour) // of the fake clock
				synctest.Wait()
				if err := s.ready(nil); err != nil || ctx.Err() != nil {
					t.Fatalf("before the signal: %v, %v", err, ctx.Err())
				}
				began := time.Now()
				term()
				if s.ready(nil) == nil {
					t.Error("ready after the signal")
				}
				<-ctx.Done()
				if took := time.Since(began); took != test.want {
					t.Errorf("ended %s after the signal, want %s", took, test.want)
				}
			})
		})
	}
}

// A manager that ends by itself, such as without its lease, leaves nothing behind that waits.
func TestAManagerThatEndsByItselfWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signal, term := context.WithCancel(t.Context())
		s := &shutdown{signal: signal, delay: time.Hour}
		s.serving.Store(true)
		began := time.Now()
		ctx, cancel := s.context()
		term()
		synctest.Wait()
		cancel()
		<-ctx.Done()
		synctest.Wait()
		if took := time.Since(began); took != 0 {
			t.Errorf("took %s", took)
		}
	})
}

// OPS-101: the kubelet waits for longer than the manager needs to end: the delay, controllers and requests that take their time, and a lease
// that is released late.
func TestTheShippedGracePeriodIsAboveWhatTheManagerNeeds(t *testing.T) {
	text, err := os.ReadFile("../../config/manager/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &deployment); err != nil {
		t.Fatal(err)
	}
	pod := deployment.Spec.Template.Spec
	o, err := parseOptions(pod.Containers[0].Args)
	if err != nil {
		t.Fatal(err)
	}
	grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second
	if need := o.shutdownDelay + gracefulStop + o.renewDeadline; o.shutdownDelay < 5*time.Second || grace < need+5*time.Second {
		t.Errorf("the grace is %s, the manager may need %s", grace, need)
	}
}
