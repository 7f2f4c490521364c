package imagepull

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// unreliable is a store whose listing may fail.
type unreliable struct {
	*store
	list func() error
}

func (u unreliable) Images(ctx context.Context) ([]runtime.Image, error) {
	if err := u.list(); err != nil {
		return nil, err
	}
	return u.store.Images(ctx)
}

// ND-037, ND-038, IMG-144: while no runtime answers, because the node starts or the runtime restarts, pulls
// wait and do not fail for good. The timeout of an attempt and the deadline still count, and the message says
// what was waited for.
func TestPullsWaitForTheRuntime(t *testing.T) {
	away := fmt.Errorf("%w: it restarts", runtime.ErrUnavailable)
	for name, test := range map[string]struct {
		until time.Duration // how long the runtime does not answer
		found bool          // a runtime is known, but it does not answer
		spec  func(*appsv1beta1.ImageTagSpec)
		want  string
	}{
		"not found yet": {until: 5 * time.Minute, spec: policy(0, 600, 0), want: "1 Succeeded"},
		"restarting":    {until: 5 * time.Minute, found: true, spec: policy(0, 600, 0), want: "1 Succeeded"},
		"restarting, Always": {until: 5 * time.Minute, found: true, want: "1 Succeeded", spec: func(s *appsv1beta1.ImageTagSpec) {
			policy(0, 600, 0)(s)
			s.ImagePullPolicy = appsv1beta1.PullAlways
		}},
		"longer than an attempt": {until: time.Hour, spec: policy(0, 600, 0),
			want: "1 Failed pulling was cancelled after the timeout of 10m0s: " + away.Error()},
		"longer than the deadline": {until: time.Hour, spec: policy(9, 600, 30),
			want: "1 Failed pulling exceeds the activeDeadlineSeconds"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, 0, spec(test.spec, "1"))
				back := time.Now().Add(test.until)
				here := func() error {
					if time.Now().Before(back) {
						return away
					}
					return nil
				}
				b.puller.runtime = func() (Images, error) {
					if err := here(); err != nil && !test.found {
						return nil, err
					}
					return unreliable{b.store, here}, nil
				}
				b.store.pull = func(context.Context, string, runtime.Auth) error { return here() }
				b.pass()
				b.running.Wait()
				time.Sleep(time.Minute)
				if b.pass(); b.tags() != test.want {
					t.Errorf("tags in the status: got %q, want %q", b.tags(), test.want)
				}
			})
		})
	}
}

// IMG-140, IMG-135: a pulled image counts as present even if the runtime cannot list its images at that
// moment.
func TestPulledImageThatCannotBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, spec(policy(0, 600, 0), "1"))
		b.puller.runtime = func() (Images, error) {
			return unreliable{b.store, func() error {
				if len(b.store.pulls) > 0 {
					return errors.New("too busy")
				}
				return nil
			}}, nil
		}
		b.pass()
		b.running.Wait()
		if b.pass(); b.tags() != "1 Succeeded" {
			t.Errorf("tags in the status: got %q, want \"1 Succeeded\"", b.tags())
		}
	})
}

// IMG-089, IMG-138: a secret that is added to an image while it is being pulled is used at the next attempt.
func TestSecretsAddedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, spec(policy(3, 600, 0), "1"), secret("late", "ann", "docker.io"))
		b.store.pull = func(_ context.Context, _ string, auth runtime.Auth) error {
			if auth.Username == "ann" {
				return nil
			}
			return errors.New("401 Unauthorized")
		}
		b.pass()
		time.Sleep(2 * time.Second)
		n := b.object()
		image := n.Spec.Images["img"]
		image.PullSecrets = []appsv1beta1.ReferenceObject{{Namespace: "cfg", Name: "late"}}
		n.Spec.Images["img"] = image
		if err := b.api.Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		b.pass()
		b.running.Wait()
		if b.pass(); b.tags() != "1 Succeeded" {
			t.Errorf("tags after %v: got %q, want \"1 Succeeded\"", b.store.pulls, b.tags())
		}
	})
}

// IMG-131, IMG-063, IMG-143: the NodeImage was deleted and made again, and the cache shows only the new one:
// the task for the old one has another policy, and its result does not count for the new one, whose
// firstSyncStatus is set again.
func TestObjectMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, spec(policy(0, 600, 0), "1"))
		var mood atomic.Value
		mood.Store("broken")
		b.store.pull = func(ctx context.Context, _ string, _ runtime.Auth) error {
			switch mood.Load() {
			case "broken":
				return errors.New("broken")
			case "hangs":
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		b.pass()
		b.running.Wait()
		if b.pass(); b.tags() != "1 Failed broken" {
			t.Fatalf("tags in the status: got %q, want \"1 Failed broken\"", b.tags())
		}
		if s := b.object().Status.FirstSyncStatus; s.Status != appsv1beta1.SyncStatusFailed {
			t.Fatalf("status of the first sync: got %+v, want %s", s, appsv1beta1.SyncStatusFailed)
		}
		again := func(uid types.UID) {
			t.Helper()
			if err := b.api.Delete(t.Context(), b.object()); err != nil {
				t.Fatal(err)
			}
			n := spec(policy(0, 600, 0), "1")
			n.UID = uid
			if err := b.api.Create(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			b.pass()
		}
		mood.Store("hangs")
		again("second")
		time.Sleep(time.Second)
		mood.Store("works")
		again("third")
		time.Sleep(time.Second)
		b.pass()
		if tags := b.tags(); tags != "1 Succeeded" {
			t.Errorf("tags in the status: got %q, want \"1 Succeeded\"", tags)
		}
		if s := b.object().Status.FirstSyncStatus; s == nil {
			t.Error("the first sync of the new object has no status")
		} else if s.Message != "1 image is present" {
			t.Errorf("message of the first sync: got %q, want \"1 image is present\"", s.Message)
		}
		for _, task := range b.tasks {
			task.cancel()
		}
		b.running.Wait()
	})
}

// IMG-122: while the API server does not answer, pulls use the credentials that were read before.
func TestKnownSecretsOutliveTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, spec(nil, "1"), secret("one", "ann", "docker.io"))
		down := false
		s := newSecrets(interceptor.NewClient(b.api.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, name client.ObjectKey, object client.Object,
				opts ...client.GetOption) error {
				if down {
					return errors.New("connection refused")
				}
				return c.Get(ctx, name, object, opts...)
			}}), b.puller.clock)
		one, other := types.NamespacedName{Namespace: "cfg", Name: "one"}, types.NamespacedName{Namespace: "cfg", Name: "other"}
		if list, err := s.credentials(t.Context(), []types.NamespacedName{one}, nil, "img"); err != nil {
			t.Fatalf("reading the credentials: %v", err)
		} else if len(list) != 1 {
			t.Fatalf("credentials: got %v, want 1", list)
		}
		down = true
		time.Sleep(time.Hour)
		if list, err := s.credentials(t.Context(), []types.NamespacedName{one}, nil, "img"); err != nil {
			t.Errorf("credentials that are known, while the API server is down: %v", err)
		} else if len(list) != 1 {
			t.Errorf("credentials that are known, while the API server is down: got %v, want 1", list)
		}
		if _, err := s.credentials(t.Context(), []types.NamespacedName{other}, nil, "img"); err == nil {
			t.Error("what was never read is taken for missing")
		}
	})
}

// IMG-136, IMG-099: long answers of registries and runtimes do not make the object too large to be written.
func TestLongMessagesAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, spec(policy(0, 600, 0), "1"))
		b.store.pull = func(context.Context, string, runtime.Auth) error { return errors.New(strings.Repeat("é", 1<<20)) }
		b.pass()
		b.running.Wait()
		b.pass()
		tags := b.object().Status.ImageStatuses["img"].Tags
		at := slices.IndexFunc(tags, func(s appsv1beta1.ImageTagStatus) bool { return s.Phase == failed })
		if at < 0 {
			t.Errorf("none of the tags has failed: %v", tags)
		} else if n := len(tags[at].Message); n > 1024 {
			t.Errorf("message of the failed tag: has %d bytes, want 1024 at most", n)
		} else if !strings.HasPrefix(tags[at].Message, "éé") {
			t.Errorf("message of the failed tag: got %.20q, want the beginning of the answer",
				tags[at].Message)
		}
		event := <-b.events.Events
		if len(event) > 1100 {
			t.Errorf("event of the failure: has %d bytes, want 1100 at most", len(event))
		}
		if strings.Contains(event, "\ufffd") {
			t.Errorf("event of the failure: is cut within a character: %q", event)
		}
	})
}

// The tags of an image share its pull secrets, whoever owns them. A copy is used only for tags of the jobs
// for which it was made, a copy of an older release for jobs of its source's namespace, and any other secret
// for jobs of its own namespace and for tags without a job. Otherwise one tenant could pull private images of
// another with the other's credentials (IMG-111, IMG-113, IMG-118). A further job is seen at once.
func TestPullSecretsOfOthersAreNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		copied := secret("copy", "ann", "docker.io")
		copied.Annotations = map[string]string{pub.SecretSource: "shop/pull", pub.SecretReferences: "shop/warm,shop/warmer"}
		older := secret("older", "bob", "docker.io")
		older.Annotations = map[string]string{pub.SecretSource: "shop/pull"}
		b := newBench(t, 0, spec(nil, "1"), copied, older, secret("own", "node", "docker.io"))
		names := []types.NamespacedName{{Namespace: "cfg", Name: "copy"}, {Namespace: "cfg", Name: "older"},
			{Namespace: "cfg", Name: "own"}}
		s := b.puller.secrets
		count := func(jobs ...string) int {
			t.Helper()
			list, err := s.credentials(t.Context(), names, jobs, "img")
			if err != nil {
				t.Fatal(err)
			}
			return len(list)
		}
		for _, test := range []struct {
			jobs []string
			want int
		}{{[]string{"shop/warm"}, 2}, {[]string{"shop/other"}, 1}, {[]string{"mall/warm"}, 0}, {[]string{"shopping/warm"}, 0},
			{[]string{"cfg/warm"}, 1},
			{nil, 1}, {[]string{"mall/warm", "shop/warmer"}, 2}, {[]string{"cfg/warm", "shop/warm"}, 3}} {
			if got := count(test.jobs...); got != test.want {
				t.Errorf("credentials for the jobs %v: got %d, want %d", test.jobs, got, test.want)
			}
		}
		copied.Annotations[pub.SecretReferences] += ",shop/new"
		if err := b.api.Update(t.Context(), copied); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		if got := count("shop/new"); got != 2 {
			t.Errorf("credentials for a job that joined: got %d, want 2", got)
		}
		reads := len(b.reads)
		for range 1000 {
			count("mall/warm")
		}
		if n := len(b.reads) - reads; n > 1 {
			t.Errorf("reads for a job that has no right: got %d, want 1 at most", n)
		}
	})
}

// A task uses the jobs of its own tag alone.
func TestATaskUsesItsOwnJobs(t *testing.T) {
	owned := &task{spec: appsv1beta1.ImageTagSpec{OwnerReferences: []corev1.ObjectReference{{Namespace: "shop", Name: "warm"},
		{Namespace: "mall", Name: "warm"}}}}
	if diff := cmp.Diff([]string{"shop/warm", "mall/warm"}, owned.jobs()); diff != "" {
		t.Errorf("jobs of the task (-want +got):\n%s", diff)
	}
}
