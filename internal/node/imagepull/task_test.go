package imagepull

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// store is a runtime's image store.
type store struct {
	images []runtime.Image
	pull   func(ctx context.Context, image string, auth runtime.Auth) error
	pulls  []string
	last   map[string]string // annotations of the last pull
	mu     sync.Mutex
}

func (s *store) Images(context.Context) ([]runtime.Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.images), nil
}

func (s *store) Pull(ctx context.Context, image string, auth runtime.Auth, _, annotations map[string]string) error {
	s.mu.Lock()
	s.pulls, s.last = append(s.pulls, strings.TrimSpace(image+" "+auth.Username)), annotations
	s.mu.Unlock()
	if s.pull != nil {
		if err := s.pull(ctx, image, auth); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images = append(s.images, runtime.Image{ID: "sha256:id", Tags: []string{image}, Size: 7})
	return nil
}

type bench struct {
	*reconciler
	t      *testing.T
	api    client.Client
	store  *store
	events *record.FakeRecorder
	writes int
	reads  []string
}

func newBench(t *testing.T, workers int, objects ...client.Object) *bench {
	scheme := k8sruntime.NewScheme()
	_ = corev1.AddToScheme(scheme)
	_ = appsv1beta1.AddToScheme(scheme)
	b := &bench{t: t, store: &store{}, events: record.NewFakeRecorder(99)}
	b.api = fake.NewClientBuilder().WithTypeConverters(managedfields.NewDeducedTypeConverter()).WithScheme(scheme).
		WithStatusSubresource(&appsv1beta1.NodeImage{}).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch,
			opts ...client.SubResourcePatchOption) error {
			b.writes++
			return c.SubResource(sub).Patch(ctx, object, patch, opts...)
		},
		Get: func(ctx context.Context, c client.WithWatch, name client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			if _, ok := object.(*corev1.Secret); ok {
				b.reads = append(b.reads, name.String())
			}
			return c.Get(ctx, name, object, opts...)
		},
	}).Build()
	b.reconciler = newReconciler(b.api, b.api, func() (Images, error) { return b.store, nil },
		Options{Node: "node", Events: b.events, Workers: workers})
	return b
}

func (b *bench) pass() reconcile.Result {
	b.t.Helper()
	result, err := b.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "node"}})
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

func (b *bench) object() *appsv1beta1.NodeImage {
	b.t.Helper()
	n := &appsv1beta1.NodeImage{}
	if err := b.api.Get(b.t.Context(), types.NamespacedName{Name: "node"}, n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bench) tags() string {
	var all []string
	for _, tag := range b.object().Status.ImageStatuses["img"].Tags {
		all = append(all, fmt.Sprintf("%s %s %s", tag.Tag, tag.Phase, tag.Message))
	}
	return strings.TrimSpace(strings.Join(all, ", "))
}

func spec(change func(*appsv1beta1.ImageTagSpec), tags ...string) *appsv1beta1.NodeImage {
	n := nodeImage(0, tags)
	for i := range n.Spec.Images["img"].Tags {
		if change != nil {
			change(&n.Spec.Images["img"].Tags[i])
		}
	}
	return n
}

func policy(backoff, timeout int32, deadline int64) func(*appsv1beta1.ImageTagSpec) {
	return func(s *appsv1beta1.ImageTagSpec) {
		s.PullPolicy = &appsv1beta1.ImageTagPullPolicy{BackoffLimit: &backoff, TimeoutSeconds: &timeout}
		if deadline > 0 {
			s.PullPolicy.ActiveDeadlineSeconds = &deadline
		}
	}
}

// IMG-130, IMG-132, IMG-139 to IMG-142, IMG-130: a pull from Waiting to Succeeded, with its event, and rest
// afterwards.
func TestPullIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := spec(nil, "1")
		image := n.Spec.Images["img"]
		image.SandboxConfig = &appsv1beta1.SandboxConfig{Annotations: map[string]string{"a": "b"}}
		n.Spec.Images["img"] = image
		b := newBench(t, 0, n)
		b.store.pull = func(ctx context.Context, _ string, _ runtime.Auth) error {
			time.Sleep(10 * time.Second)
			return nil
		}
		r := b.pass()
		if r.RequeueAfter < 3*time.Second || r.RequeueAfter > 5*time.Second {
			t.Errorf("the next pass while the image is pulled: after %s, want 3s to 5s", r.RequeueAfter)
		}
		if b.tags() != "1 Waiting" {
			t.Errorf("tags after the first pass: got %q, want \"1 Waiting\"", b.tags())
		}
		time.Sleep(5 * time.Second)
		if b.pass(); b.tags() != "1 Pulling" {
			t.Errorf("tags while the image is pulled: got %q, want \"1 Pulling\"", b.tags())
		}
		time.Sleep(6 * time.Second)
		if r := b.pass(); r.RequeueAfter < 20*time.Minute {
			t.Errorf("the next pass when all is done: after %s, want 20m at least", r.RequeueAfter)
		}
		tag := b.object().Status.ImageStatuses["img"].Tags[0]
		if tag.Phase != succeeded || tag.Progress != 100 || tag.ImageID != "img@sha256:id" ||
			tag.CompletionTime.Sub(tag.StartTime.Time) != 10*time.Second {
			t.Errorf("tag that was pulled in 10s: got %+v, want it succeeded with its ID, at 100%%", tag)
		}
		if event := <-b.events.Events; event != "Normal PullImageSucceed Image img:1, elapsed time 10s" {
			t.Errorf("event of the pull: got %q, want that img:1 took 10s", event)
		}
		if diff := cmp.Diff(map[string]string{"a": "b", "apps.kruise.io/pulling-image-by": "kruise-daemon"}, b.store.last); diff != "" {
			t.Errorf("annotations of the sandbox (-want +got):\n%s", diff)
		}
		writes := b.writes
		for range 3 {
			b.pass()
		}
		if b.writes != writes {
			t.Errorf("writes at rest: got %d, want 0", b.writes-writes)
		}
		if len(b.store.pulls) != 1 {
			t.Errorf("pulls: got %v, want 1", b.store.pulls)
		}
		if s := b.object().Status.FirstSyncStatus; s == nil || s.Status != appsv1beta1.SyncStatusSucceeded {
			t.Errorf("status of the first sync: got %+v, want %s", s, appsv1beta1.SyncStatusSucceeded)
		}
	})
}

// IMG-135, IMG-136, IMG-141, IMG-014, IMG-015, IMG-216, IMG-224: attempts, pauses, timeouts and deadlines,
// and the final status and event.
func TestAttempts(t *testing.T) {
	hang := func(ctx context.Context, _ string, _ runtime.Auth) error { <-ctx.Done(); return ctx.Err() }
	broken := func(context.Context, string, runtime.Auth) error { return errors.New("no such image") }
	always := func(s *appsv1beta1.ImageTagSpec) { s.ImagePullPolicy = appsv1beta1.PullAlways }
	for name, test := range map[string]struct {
		spec    func(*appsv1beta1.ImageTagSpec)
		pull    func(context.Context, string, runtime.Auth) error
		present bool
		pulls   int
		took    time.Duration
		phase   string
	}{
		"present":         {present: true, phase: "1 Succeeded"},
		"present, Always": {spec: always, present: true, pulls: 1, phase: "1 Succeeded"},
		"fails, pauses double": {spec: policy(6, 600, 0), pull: broken, pulls: 7, took: (1 + 2 + 4 + 8 + 16 + 30) * time.Second,
			phase: "1 Failed no such image"},
		"default back-off":        {pull: broken, pulls: 4, took: 7 * time.Second, phase: "1 Failed no such image"},
		"no pause after the last": {spec: policy(0, 600, 0), pull: broken, pulls: 1, phase: "1 Failed no such image"},
		"timeout of an attempt": {spec: policy(0, 20, 0), pull: hang, pulls: 1, took: 20 * time.Second,
			phase: "1 Failed pulling was cancelled after the timeout of 20s"},
		"timeout of hours": {spec: policy(0, 7200, 0), pull: hang, pulls: 1, took: 2 * time.Hour,
			phase: "1 Failed pulling was cancelled after the timeout of 2h0m0s"},
		"deadline in an attempt": {spec: policy(9, 600, 30), pull: hang, pulls: 1, took: 30 * time.Second,
			phase: "1 Failed pulling exceeds the activeDeadlineSeconds"},
		"deadline during a pause": {spec: policy(9, 600, 5), pull: broken, pulls: 3, took: 5 * time.Second,
			phase: "1 Failed pulling exceeds the activeDeadlineSeconds"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := spec(test.spec, "1")
				n.Spec.Images["img"].Tags[0].OwnerReferences = []corev1.ObjectReference{{Kind: "ImagePullJob", Namespace: "ns",
					Name: "job"}}
				b := newBench(t, 0, n)
				b.store.pull = test.pull
				if test.present {
					b.store.images = []runtime.Image{{ID: "sha256:id", Tags: []string{"docker.io/library/img:1"}}}
				}
				begin := time.Now()
				b.pass()
				b.running.Wait()
				if took := time.Since(begin); took != test.took {
					t.Errorf("the attempts took %s, want %s", took, test.took)
				}
				time.Sleep(time.Minute)
				if b.pass(); b.tags() != test.phase {
					t.Errorf("tags in the status: got %q, want %q", b.tags(), test.phase)
				}
				if len(b.store.pulls) != test.pulls {
					t.Errorf("pulls: got %v, want %d", b.store.pulls, test.pulls)
				}
				if want := 1; strings.Contains(test.phase, "Failed") {
					want = 2 // the NodeImage and the job
					if len(b.events.Events) != want ||
						!strings.HasPrefix(<-b.events.Events, "Warning PullImageFailed Image img:1 on node node: ") {
						t.Errorf("events: want %d, the first of which tells that the pull failed", want)
					}
				} else if len(b.events.Events) != want {
					t.Error("events")
				}
			})
		})
	}
}

// IMG-133 (part), IMG-159, IMG-220: N pulls at once, no matter which jobs or lists they are for, in their
// order. A tag that leaves the queue is not pulled, and waiting does not count against the deadline.
func TestSoManyPullsRunAtOnceInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 1, spec(policy(0, 600, 15), "1", "2", "3"))
		b.store.pull = func(context.Context, string, runtime.Auth) error { time.Sleep(10 * time.Second); return nil }
		b.pass()
		time.Sleep(2 * time.Second)
		if b.pass(); b.tags() != "1 Pulling , 2 Waiting , 3 Waiting" {
			t.Errorf("tags while one place is taken: got %q, want 1 pulling, 2 and 3 waiting", b.tags())
		}
		n := b.object()
		image := n.Spec.Images["img"]
		image.Tags = []appsv1beta1.ImageTagSpec{image.Tags[0], image.Tags[2]}
		n.Spec.Images["img"] = image
		if err := b.api.Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		b.pass()
		b.running.Wait()
		time.Sleep(time.Minute)
		if b.pass(); b.tags() != "1 Succeeded , 3 Succeeded" || strings.Join(b.store.pulls, ",") != "docker.io/library/img:1,docker.io/library/img:3" {
			t.Errorf("tags %q and pulls %v, want 1 and 3 succeeded, and pulled", b.tags(), b.store.pulls)
		}
	})
}

// IMG-133 (part): pulls of one tenant from a registry that never ends an answer do not keep those of another
// tenant waiting: the tenant also gains nothing by pulling the other's image too.
func TestPullsOfOneTenantDoNotHoldUpThoseOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(tag string, namespaces ...string) appsv1beta1.ImageTagSpec {
			spec := appsv1beta1.ImageTagSpec{Tag: tag, PullPolicy: &appsv1beta1.ImageTagPullPolicy{TimeoutSeconds: new(int32(1 << 30))}}
			for _, namespace := range namespaces {
				spec.OwnerReferences = append(spec.OwnerReferences, corev1.ObjectReference{Namespace: namespace, Name: "job"})
			}
			return spec
		}
		n := spec(nil, "1")
		image := appsv1beta1.ImageSpec{}
		for i := range 20 {
			image.Tags = append(image.Tags, of(fmt.Sprintf("hostile-%d", i), "hostile"))
		}
		n.Spec.Images["img"] = image
		b := newBench(t, 5, n)
		b.store.pull = func(ctx context.Context, image string, _ runtime.Auth) error {
			if !strings.HasPrefix(image, "docker.io/library/img:hostile") {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		b.pass()
		synctest.Wait()
		if len(b.store.pulls) != 4 {
			t.Errorf("pulls of one namespace at once: got %d, want 4", len(b.store.pulls))
		}
		n = b.object()
		image.Tags = append(image.Tags, of("shop", "shop"), of("both", "hostile", "shop"))
		n.Spec.Images["img"] = image
		if err := b.api.Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		b.pass()
		time.Sleep(10 * time.Second)
		b.pass()
		tags := b.tags()
		if !strings.Contains(tags, "shop Succeeded") || !strings.Contains(tags, "both Succeeded") {
			t.Errorf("tags after %s: got %q, want shop and both succeeded", time.Since(begin), tags)
		}
		b.stop(b.all()...)
		b.running.Wait()
		if s := b.puller.slots; s.free != 5 || len(s.held) > 0 || len(s.queue) > 0 {
			t.Errorf("places are lost: got %+v, want 5 that are free, and nobody who waits", s)
		}
	})
}

// IMG-131, IMG-141: a task whose tag left the spec, or whose object is gone, ends at once, without events.
func TestStoppedTasksAreQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, spec(nil, "1"))
		b.store.pull = func(ctx context.Context, _ string, _ runtime.Auth) error { <-ctx.Done(); return ctx.Err() }
		b.pass()
		time.Sleep(time.Second)
		if err := b.api.Delete(t.Context(), b.object()); err != nil {
			t.Fatal(err)
		}
		b.pass()
		b.running.Wait()
		if len(b.events.Events) > 0 || len(b.tasks) > 0 {
			t.Errorf("left after the stop: %d events, %d tasks, want none",
				len(b.events.Events), len(b.tasks))
		}
	})
}

func secret(name, user string, registry string) *corev1.Secret {
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":pw"))
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "cfg", Name: name}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"` + registry + `":{"auth":"` + auth + `"}}}`)}}
}

// IMG-122, IMG-123, IMG-137, IMG-138, IMG-211: credentials that match are tried in order, anonymous last if
// all were rejected; a missing secret is left out and read again only after minutes; rejected ones are read
// again before the next attempt.
func TestCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := spec(policy(1, 600, 0), "1")
		image := n.Spec.Images["img"]
		for _, name := range []string{"none", "one", "two", "elsewhere"} {
			image.PullSecrets = append(image.PullSecrets, appsv1beta1.ReferenceObject{Namespace: "cfg", Name: name})
		}
		n.Spec.Images["img"] = image
		b := newBench(t, 0, n, secret("one", "ann", "docker.io"), secret("two", "ben", "https://index.docker.io/v1/"),
			secret("elsewhere", "eve", "r.io"))
		b.store.pull = func(_ context.Context, _ string, auth runtime.Auth) error {
			if auth.Username == "new" {
				return nil
			}
			return errors.New("failed to authorize: 401 Unauthorized")
		}
		b.pass()
		time.Sleep(500 * time.Millisecond)
		rotated := secret("two", "new", "docker.io")
		if err := b.api.Update(t.Context(), rotated); err != nil {
			t.Fatal(err)
		}
		b.running.Wait()
		if diff := cmp.Diff([]string{"docker.io/library/img:1 ann", "docker.io/library/img:1 ben", "docker.io/library/img:1", "docker.io/library/img:1 ann", "docker.io/library/img:1 new"}, b.store.pulls); diff != "" {
			t.Errorf("pulls and their credentials (-want +got):\n%s", diff)
		}
		reads := len(b.reads)
		s := b.puller.secrets
		names := []types.NamespacedName{{Namespace: "cfg", Name: "elsewhere"}}
		for _, step := range []struct {
			wait  time.Duration
			reads int
		}{{time.Minute, 1}, {4 * time.Minute, 1}, {10 * time.Minute, 2}} {
			time.Sleep(step.wait)
			if _, err := s.credentials(t.Context(), names, nil, "img"); err != nil || len(b.reads)-reads > step.reads {
				t.Errorf("a missing secret after %s: %v, %d reads, want %d at most",
					step.wait, err, len(b.reads)-reads, step.reads)
			}
		}
	})
}

// IMG-137: a failure that is not about credentials is reported, and nothing is pulled anonymously.
func TestOtherFailuresAreNotHidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := spec(policy(0, 600, 0), "1")
		image := n.Spec.Images["img"]
		image.PullSecrets = []appsv1beta1.ReferenceObject{{Namespace: "cfg", Name: "one"}}
		n.Spec.Images["img"] = image
		b := newBench(t, 0, n, secret("one", "ann", "docker.io"))
		b.store.pull = func(context.Context, string, runtime.Auth) error { return errors.New("disk full") }
		b.pass()
		b.running.Wait()
		time.Sleep(time.Minute)
		if b.pass(); b.tags() != "1 Failed disk full" || strings.Join(b.store.pulls, ",") != "docker.io/library/img:1 ann" {
			t.Errorf("tags %q and pulls %v, want one pull that failed with \"disk full\"",
				b.tags(), b.store.pulls)
		}
	})
}

// IMG-123, IMG-137, ND-073: which images entries apply to, and the forms of docker configurations; errors
// contain no content.
func TestEntriesOfDockerConfigurationsApplyToTheirImages(t *testing.T) {
	for _, test := range []struct {
		registry, host, repository string
		want                       bool
	}{
		{"docker.io", "docker.io", "library/img", true},
		{"https://index.docker.io/v1/", "docker.io", "library/img", true},
		{"*.r.io", "a.r.io", "x", true},
		{"*.r.io", "a.b.r.io", "x", false},
		{"r.io:5000", "r.io:5000", "x", true},
		{"r.io", "r.io:5000", "x", false},
		{"r.io/team", "r.io", "team/x", true},
		{"r.io/team", "r.io", "teams/x", false},
		{"r.io/team", "r.io", "team", true},
		{"https://r.io/team/", "r.io", "team/x", true},
		{"https://r.io/v2/team", "r.io", "team/x", true},
		{"https://r.io/v1/team/", "r.io", "team/x", true},
		{"https://r.io/v2/team", "r.io", "other/x", false},
		{"https://r.io/v2", "r.io", "x", true},
		{"r.io/v2x", "r.io", "v2x/y", true},
		{"%", "r.io", "x", false},
	} {
		if got := covers(location(test.registry), test.host, test.repository); got != test.want {
			t.Errorf("%s covers %s/%s: got %t, want %t",
				test.registry, test.host, test.repository, got, test.want)
		}
	}
	old := &corev1.Secret{Type: corev1.SecretTypeDockercfg,
		Data: map[string][]byte{
			corev1.DockerConfigKey: []byte(
				`{"r.io":{"username":"u","password":"p","identitytoken":"i","registrytoken":"r"},"r.io/team":{"username":"t"}}`)}}
	found, err := fromSecret(old, "r.io/team/app:1")
	want := []runtime.Auth{{Username: "t"}, {Username: "u", Password: "p", IdentityToken: "i", RegistryToken: "r"}}
	if err != nil {
		t.Errorf("reading the old form: %v", err)
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("credentials of the old form (-want +got):\n%s", diff)
	}
	for _, bad := range []*corev1.Secret{
		{Type: corev1.SecretTypeOpaque},
		{Type: corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte("hunter2")}},
		{Type: corev1.SecretTypeDockercfg, Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{"r.io":{"auth":"hunter2"}}`)}},
	} {
		if _, err := fromSecret(bad, "r.io/app"); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("an unreadable secret: got error %v, want one without its content", err)
		}
	}
}

// ND-058, IMG-062: at most 5 writes at once and one in 2 s; a conflict with the manager is tried again from
// the new object.
func TestWritesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 0, spec(nil, "1"))
		b.store.pull = func(ctx context.Context, _ string, _ runtime.Auth) error { <-ctx.Done(); return ctx.Err() }
		for i := range 20 {
			n := b.object()
			n.Spec.Images["img"].Tags[0].Version = int64(i)
			if err := b.api.Update(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			if r := b.pass(); r.RequeueAfter > 5*time.Second {
				t.Errorf("the next pass after version %d: after %s, want 5s at most", i, r.RequeueAfter)
			}
		}
		if b.writes != 5 {
			t.Errorf("writes at once: got %d, want 5", b.writes)
		}
		request := reconcile.Request{NamespacedName: types.NamespacedName{Name: "node"}}
		b.backOff.When(request)
		b.pass()
		if b.backOff.Forget(request); b.backOff.NumRequeues(request) != 1 {
			t.Error("a write that is put off ends the back-off of those that fail")
		}
		time.Sleep(4 * time.Second)
		for range 5 {
			b.pass()
		}
		if b.writes > 7 {
			t.Errorf("writes after 4 s: got %d, want 7 at most", b.writes)
		}
		if err := b.api.Delete(t.Context(), b.object()); err != nil {
			t.Fatal(err)
		}
		b.pass()
		b.running.Wait()
	})
}
