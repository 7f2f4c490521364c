package controller

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

func fakeClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithStatusSubresource(&appsv1beta1.ImagePullJob{},
		&appsv1beta1.NodeImage{}).
		WithIndex(&appsv1beta1.NodeImage{}, ownersOf, indexOwners).Build()
}

// IMG-075, IMG-076, IMG-225: with 200 jobs on 100 nodes a changed tag of a node calls for a pass over the job
// that owns it, and for no other; a hundred nodes that report within a moment for one pass together.
func TestOneTagConcernsItsJobsOnly(t *testing.T) {
	const jobs, nodes = 200, 100
	var objects []client.Object
	images := map[string]appsv1beta1.ImageSpec{}
	for i := range jobs {
		name := fmt.Sprintf("job-%d", i)
		job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
			j.Name, j.UID, j.ResourceVersion, j.Spec.Image = name, types.UID("uid-"+name), "", fmt.Sprintf("image-%d:1", i)
			j.Spec.Selector = &appsv1beta1.ImagePullJobNodeSelector{} // IMG-076: all nodes
		})
		objects = append(objects, job)
		images[fmt.Sprintf("image-%d", i)] = appsv1beta1.ImageSpec{Tags: []appsv1beta1.ImageTagSpec{{Tag: "1",
			OwnerReferences: []corev1.ObjectReference{imagepulltest.Owner(name)}}}}
	}
	c := fakeClient(t, objects...)
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		handle := (&jobEvents{reader: c, rooms: &imagepull.Rooms{}}).ofNodeImages()
		settled := func() []string {
			time.Sleep(time.Second) // of the bubble's clock
			synctest.Wait()
			var names []string
			for q.Len() > 0 {
				item, _ := q.Get()
				q.Done(item)
				names = append(names, item.Name)
			}
			return names
		}
		for i := range nodes {
			before := &appsv1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)},
				Spec: appsv1beta1.NodeImageSpec{Images: images}}
			after := before.DeepCopy()
			after.Status.ImageStatuses = map[string]appsv1beta1.ImageStatus{"image-7": {Tags: []appsv1beta1.ImageTagStatus{{Tag: "1",
				Phase: "Succeeded"}}}}
			handle.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
			progressed := after.DeepCopy()
			progressed.Status.ImageStatuses["image-7"].Tags[0].Progress = 50
			progressed.Status.Pulling = 3
			handle.Update(t.Context(), event.UpdateEvent{ObjectOld: after, ObjectNew: progressed}, q)
		}
		if got := settled(); len(got) != 1 {
			t.Errorf("number of results: got %d, want 1; %d passes: %v", len(got), len(got), got)
		} else if got[0] != "job-7" {
			t.Errorf("first result: got %q, want %q; %d passes: %v", got[0], "job-7", len(got), got)
		}
		same := &appsv1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: appsv1beta1.NodeImageSpec{Images: images}}
		touched := same.DeepCopy()
		touched.Annotations = map[string]string{"a": "b"}
		handle.Update(t.Context(), event.UpdateEvent{ObjectOld: same, ObjectNew: touched}, q)
		if got := settled(); len(got) != 0 {
			t.Errorf("an unrelated change: %v", got)
		}
		handle.Create(t.Context(), event.CreateEvent{Object: same}, q)
		if got := settled(); len(got) != jobs {
			t.Errorf("a new node concerns all jobs for all nodes, not %d", len(got))
		}
		narrow := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
			j.ResourceVersion, j.Spec.Selector = "", &appsv1beta1.ImagePullJobNodeSelector{Names: []string{"elsewhere"}}
		})
		if err := c.Create(t.Context(), narrow); err != nil {
			t.Errorf("creating the job: %v", err)
		}
		handle.Create(t.Context(), event.CreateEvent{Object: same}, q)
		handle.Delete(t.Context(), event.DeleteEvent{Object: same}, q)
		got := settled()
		if len(got) != jobs {
			t.Errorf("IMG-075: number of results: got %d, want %d", len(got), jobs)
		}
		if slices.Contains(got, narrow.Name) {
			t.Errorf("IMG-075: jobs that are concerned: got %q, want it not to contain %q", got, narrow.Name)
		}
		touched.Labels = map[string]string{"pool": "web"}
		handle.Update(t.Context(), event.UpdateEvent{ObjectOld: same, ObjectNew: touched}, q)
		if got := settled(); len(got) != 0 {
			t.Errorf("IMG-075: labels that no selection reads: %v", got)
		}
	})
}

// IMG-075: a job hears of a pod that it selects now, or does not any more, and of nothing else that becomes
// of pods: a rollout changes every pod of its set several times.
func TestPodsThatAJobSelects(t *testing.T) {
	c := fakeClient(t, imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
		j.ResourceVersion = ""
		j.Spec.PodSelector = &appsv1beta1.ImagePullJobPodSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
	}))
	pod := func(node string, labels map[string]string, edits ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: imagepulltest.Job().Namespace, Name: "web-0", Labels: labels},
			Spec: corev1.PodSpec{NodeName: node}}
		for _, edit := range edits {
			edit(p)
		}
		return p
	}
	web, next, other := map[string]string{"app": "web"}, map[string]string{"app": "web", "revision": "2"}, map[string]string{"app": "api"}
	ending := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Now()} }
	done := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	for name, tt := range map[string]struct {
		before, after *corev1.Pod
		want          bool
	}{
		"it comes, with a node":        {nil, pod("n1", web), true},
		"it comes, without":            {nil, pod("", web), false},
		"another comes":                {nil, pod("n1", other), false},
		"it is scheduled":              {pod("", web), pod("n1", web), true},
		"its revision changes":         {pod("n1", web), pod("n1", next), false},
		"it is selected now":           {pod("n1", other), pod("n1", web), true},
		"it is not selected any more":  {pod("n1", web), pod("n1", other), true},
		"it ends":                      {pod("n1", web), pod("n1", web, ending), true},
		"it ended and gets other ways": {pod("n1", web, ending), pod("n1", other, ending), false},
		"it is done":                   {pod("n1", web), pod("n1", web, done), true},
		"it is gone":                   {pod("n1", web, ending), nil, true},
		"another is gone":              {pod("n1", other), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
				defer q.ShutDown()
				handle := (&jobEvents{reader: c, rooms: &imagepull.Rooms{}}).ofPods()
				switch {
				case tt.before == nil:
					handle.Create(t.Context(), event.CreateEvent{Object: tt.after}, q)
				case tt.after == nil:
					handle.Delete(t.Context(), event.DeleteEvent{Object: tt.before}, q)
				default:
					handle.Update(t.Context(), event.UpdateEvent{ObjectOld: tt.before, ObjectNew: tt.after}, q)
				}
				time.Sleep(time.Second) // of the bubble's clock
				if got := q.Len() > 0; got != tt.want {
					t.Errorf("a pass: %v, want %v", got, tt.want)
				}
			})
		})
	}
}

// IMG-082, IMG-085, IMG-213, IMG-214: a whole job; NodeImages that another job has just written get this one
// too, and its entry stays.
func TestJobRunsToItsEnd(t *testing.T) {
	job := imagepulltest.Job(imagepulltest.Parallelism(2), func(j *appsv1beta1.ImagePullJob) {
		j.ResourceVersion, j.Finalizers, j.Status = "", nil, appsv1beta1.ImagePullJobStatus{}
		j.Spec.PullSecrets = []string{"login"}
	})
	source := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "login", Labels: map[string]string{"gitops": "x"}},
		Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{".dockerconfigjson": []byte("{}")}, Immutable: new(true)}
	objects := []client.Object{job, source}
	for i := range 4 {
		node := imagepulltest.Blank(fmt.Sprint("n", i))
		node.ResourceVersion = ""
		objects = append(objects, node)
	}
	c := fakeClient(t, objects...)
	recorder := events.NewFakeRecorder(100)
	now := imagepulltest.Noon
	r := &JobReconciler{API: own.NewAPI(c, c, slim.Any, func() time.Time { return now }), Events: own.NewRecorder(recorder),
		Secrets: secretsOn(c), Random: func() float64 { return 0 }}
	loop := r.controller().Loop(nil)
	key := client.ObjectKeyFromObject(job)
	pass := func() {
		t.Helper()
		if _, err := loop.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
	}
	var once sync.Once
	for range 10 {
		pass()
		var list appsv1beta1.NodeImageList
		if err := c.List(t.Context(), &list); err != nil {
			t.Fatal(err)
		}
		active := 0
		for i := range list.Items {
			node := &list.Items[i]
			tags := node.Spec.Images["app"].Tags
			owned := slices.IndexFunc(tags, func(tag appsv1beta1.ImageTagSpec) bool {
				return slices.ContainsFunc(tag.OwnerReferences, func(o corev1.ObjectReference) bool { return o.UID == job.UID })
			})
			if owned < 0 {
				continue
			}
			if len(node.Spec.Images["app"].PullSecrets) != 1 {
				t.Errorf("IMG-118: number of pull secrets of the image app of the node: got %d, want 1\n%+v",
					len(node.Spec.Images["app"].PullSecrets),
					node.Spec.Images["app"].PullSecrets)
			} else if node.Spec.Images["app"].PullSecrets[0].Mode != "batch" {
				t.Errorf("IMG-118: mode of the first pull secret of the image app: got %q, want %q\n%+v",
					node.Spec.Images["app"].PullSecrets[0].Mode,
					"batch", node.Spec.Images["app"].PullSecrets)
			}
			if imagepull.TagStatus(node, "app", "1") == nil {
				active++
				node.Status.ImageStatuses = map[string]appsv1beta1.ImageStatus{"app": {Tags: []appsv1beta1.ImageTagStatus{{Tag: "1",
					Version: tags[owned].Version, Phase: "Succeeded"}}}}
				if err := c.Status().Update(t.Context(), node); err != nil {
					t.Fatal(err)
				}
			}
		}
		if active > 2 {
			t.Errorf("IMG-085: %d nodes at once", active)
		}
		once.Do(func() {
			var copied corev1.SecretList
			if err := c.List(t.Context(), &copied, client.InNamespace("config")); err != nil {
				t.Fatalf("IMG-110, IMG-114, ND-067: listing the copies: unexpected error: %v\n%d", err,
					len(copied.Items))
			} else if len(copied.Items) != 1 {
				t.Fatalf("IMG-110, IMG-114, ND-067: number of items of the copied: got %d, want 1\n%v",
					len(copied.Items), err)
			}
			s := &copied.Items[0]
			if s.Annotations[pub.SecretSource] != "shop/login" {
				t.Errorf("IMG-113, IMG-115, IMG-117: annotation secret source: got %q, want %q\n%+v",
					s.Annotations[pub.SecretSource],
					"shop/login", s)
			}
			if s.Annotations[pub.SecretReferences] != "shop/warm" {
				t.Errorf("IMG-113, IMG-115, IMG-117: annotation secret references: got %q, want %q\n%+v",
					s.Annotations[pub.SecretReferences],
					"shop/warm", s)
			}
			if s.Type != source.Type {
				t.Errorf("IMG-113, IMG-115, IMG-117: type: got %q, want %q\n%+v", s.Type, source.Type, s)
			}
			if s.Labels["gitops"] != "" {
				t.Errorf("IMG-113, IMG-115, IMG-117: label gitops: got %q, want %q\n%+v", s.Labels["gitops"], "", s)
			}
			if s.Immutable != nil {
				t.Errorf("IMG-113, IMG-115, IMG-117: immutable: got a value, want nil\n%+v", s)
			}
		})
	}
	if err := c.Get(t.Context(), key, job); err != nil {
		t.Fatal(err)
	}
	if s := job.Status; s.CompletionTime == nil {
		t.Errorf("IMG-092: time of completion: got nil, want a value\n%+v\n%v", s, job.Finalizers)
	} else if s.Succeeded != 4 {
		t.Errorf("IMG-092: succeeded: got %d, want 4\n%+v\n%v", s.Succeeded, s, job.Finalizers)
	} else if s.Message != "job has completed" {
		t.Errorf("IMG-092: message: got %q, want %q\n%+v\n%v", s.Message, "job has completed", s, job.Finalizers)
	} else if len(job.Finalizers) != 0 {
		t.Errorf("IMG-092: number of finalizers: got %d, want 0\n%+v\n%v", len(job.Finalizers), s, job.Finalizers)
	}
	var left corev1.SecretList
	if err := c.List(t.Context(), &left, client.InNamespace("config")); err != nil {
		t.Errorf(`IMG-120: c.List(t.Context(), &left, client.InNamespace("config")): unexpected error: %v; %v %d copies are left`, err, err,
			len(left.Items))
	} else if len(left.Items) != 0 {
		t.Errorf("IMG-120: number of items: got %d, want 0; %v %d copies are left", len(left.Items), err,
			len(left.Items))
	}
}

// IMG-114, IMG-116, IMG-119, IMG-120 (part): jobs share a copy, it follows its source, foreign secrets are
// not touched.
func TestSecretsAreShared(t *testing.T) {
	source := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "login"}, Type: corev1.SecretTypeDockercfg,
		Data: map[string][]byte{".dockercfg": []byte("{}"), "old": []byte("x")}}
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "config", Name: "foreign"}, Type: corev1.SecretTypeDockercfg}
	c := fakeClient(t, source, foreign)
	s := secretsOn(c)
	one := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Spec.PullSecrets = []string{"login", "missing"} })
	two := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Name, j.Spec.PullSecrets = "cold", []string{"login"} })
	first, missing, err := s.Sync(t.Context(), one)
	if err != nil {
		t.Fatalf("unexpected error: %v\n%v\n%v", err, first, missing)
	} else if len(first) != 1 {
		t.Fatalf("number of the first: got %d, want 1\n%v\n%v\n%v", len(first), first, missing, err)
	} else if len(missing) != 1 {
		t.Fatalf("number missing: got %d, want 1\n%v\n%v\n%v", len(missing), first, missing, err)
	} else if missing[0] != "pull secret missing does not exist in namespace shop" {
		t.Fatalf("first missing: got %q, want %q\n%v\n%v\n%v", missing[0],
			"pull secret missing does not exist in namespace shop", first,
			missing, err)
	}
	source.Data = map[string][]byte{".dockercfg": []byte(`{"a":1}`)}
	if err := c.Update(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	second, _, err := s.Sync(t.Context(), two)
	if err != nil {
		t.Errorf("IMG-114: unexpected error: %v\n%v", err, second)
	} else if len(second) != 1 {
		t.Errorf("IMG-114: number of the second: got %d, want 1\n%v\n%v", len(second), second, err)
	} else if second[0] != first[0] {
		t.Errorf("IMG-114: the first the second time: got %+v, want %+v\n%v\n%v", second[0], first[0], second, err)
	}
	copied := &corev1.Secret{}
	if err := c.Get(t.Context(), types.NamespacedName{Namespace: "config", Name: first[0].Name}, copied); err != nil {
		t.Fatal(err)
	}
	if copied.Annotations[pub.SecretReferences] != "shop/cold,shop/warm" {
		t.Errorf("IMG-116: annotation secret references of the copied: got %q, want %q\n%+v",
			copied.Annotations[pub.SecretReferences],
			"shop/cold,shop/warm", copied)
	}
	if len(copied.Data) != 1 {
		t.Errorf("IMG-116: number of keys: got %d, want 1\n%+v", len(copied.Data), copied)
	}
	if string(copied.Data[".dockercfg"]) != `{"a":1}` {
		t.Errorf("IMG-116: data .dockercfg of the copied: got %q, want %q\n%+v", string(copied.Data[".dockercfg"]),
			`{"a":1}`, copied)
	}
	if err := s.Release(t.Context(), types.NamespacedName{Namespace: "shop", Name: "warm"}); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(copied), copied); err != nil {
		t.Errorf("IMG-120: unexpected error: %v\n%v", err, copied.Annotations)
	} else if copied.Annotations[pub.SecretReferences] != "shop/cold" {
		t.Errorf("IMG-120: annotation secret references of the copied: got %q, want %q\n%v\n%v",
			copied.Annotations[pub.SecretReferences],
			"shop/cold", err, copied.Annotations)
	}
	if err := s.Release(t.Context(), types.NamespacedName{Namespace: "shop", Name: "cold"}); err != nil {
		t.Fatal(err)
	}
	err = c.Get(t.Context(), client.ObjectKeyFromObject(copied), copied)
	if client.IgnoreNotFound(err) != nil {
		t.Errorf("IMG-120: reading the copy: %v", err)
	} else if err == nil {
		t.Error("IMG-120: the copy is still there")
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil {
		t.Errorf("IMG-119: %v", err)
	}
	own := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Namespace, j.Spec.PullSecrets = "config", []string{"foreign"} })
	if refs, _, err := s.Sync(t.Context(), own); err != nil {
		t.Errorf("IMG-111: unexpected error: %v\n%v", err, refs)
	} else if len(refs) != 1 {
		t.Errorf("IMG-111: number of references: got %d, want 1\n%v\n%v", len(refs), refs, err)
	} else if refs[0] != (appsv1beta1.ReferenceObject{Namespace: "config", Name: "foreign"}) {
		t.Errorf("IMG-111: first reference: got %+v, want %+v\n%v\n%v", refs[0],
			appsv1beta1.ReferenceObject{Namespace: "config", Name: "foreign"},
			refs, err)
	}
}
