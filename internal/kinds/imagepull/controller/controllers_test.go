package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
	"github.com/afloat-project/afloat/internal/platform/slim"
	own "github.com/afloat-project/afloat/internal/reconcile"
)

// told gathers events as "object: reason note", from as many goroutines as tell of them.
type told struct {
	mu   sync.Mutex
	list []string
}

func (e *told) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	name := ""
	switch o := regarding.(type) {
	case *corev1.ObjectReference:
		name = o.Kind + " " + o.Name
	case client.Object:
		name = fmt.Sprintf("%T %s", o, o.GetName())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, fmt.Sprintf("%s: %s %s", name[strings.LastIndex(name, ".")+1:], reason, fmt.Sprintf(note, args...)))
}

func (e *told) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.list
	e.list = nil
	slices.Sort(list)
	return list
}

// secretsOn keeps copies of pull secrets in namespace config.
func secretsOn(c client.Client) *Secrets {
	return &Secrets{API: &own.API{Client: c, Live: c, Now: time.Now}, Namespace: "config"}
}

func schemeOf(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// IMG-001, IMG-051, IMG-053, IMG-058, IMG-060: a node gets a NodeImage of its name with its labels; when the
// node does not answer, the NodeImage and every owner of the tag are told, once.
func TestNodeImageOfANode(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"pool": "web"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			LastTransitionTime: *imagepulltest.At(0)}}}}
	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.ResourceVersion = "" })
	c, events, now := fakeClient(t, node, job), &told{}, imagepulltest.Noon.Add(29*time.Second)
	r := &NodeReconciler{API: &own.API{Client: c, Live: c, Now: func() time.Time { return now }}, Events: events,
		Options: Options{CreationDelay: 30 * time.Second, Namespace: "config", Jobs: true}, Random: func() float64 { return 0 }}
	image := &appsv1beta1.NodeImage{}
	pass := func() error {
		t.Helper()
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "n"}}); err != nil {
			t.Fatal(err)
		}
		return c.Get(t.Context(), types.NamespacedName{Name: "n"}, image)
	}
	if err := pass(); !apierrors.IsNotFound(err) {
		t.Errorf("IMG-051: too early: %v", err)
	}
	now = imagepulltest.Noon.Add(30 * time.Second)
	if err := pass(); err != nil {
		t.Fatalf("the pass: unexpected error: %v\n%v", err, image.Labels)
	} else if image.Labels["pool"] != "web" {
		t.Fatalf("label pool of the image: got %q, want %q\n%v\n%v", image.Labels["pool"], "web", err, image.Labels)
	}
	node.Labels = map[string]string{"pool": "db"}
	if err := c.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	if err := pass(); err != nil {
		t.Errorf("IMG-053: the pass: unexpected error: %v\n%v", err, image.Labels)
	} else if len(image.Labels) != 1 {
		t.Errorf("IMG-053: number of labels of the image: got %d, want 1\n%v\n%v", len(image.Labels), err,
			image.Labels)
	} else if image.Labels["pool"] != "db" {
		t.Errorf("IMG-053: label pool of the image: got %q, want %q\n%v\n%v", image.Labels["pool"], "db", err,
			image.Labels)
	}
	image.Spec.Images = imagepulltest.Tagged("n").Spec.Images
	image.Spec.Images["app"].Tags[0].OwnerReferences = append(image.Spec.Images["app"].Tags[0].OwnerReferences,
		corev1.ObjectReference{Kind: "Other", Name: "o", UID: "o"})
	if err := c.Update(t.Context(), image); err != nil {
		t.Fatal(err)
	}
	now = imagepulltest.Noon.Add(10 * time.Minute)
	if err := pass(); err != nil {
		t.Errorf("IMG-058: the pass: unexpected error: %v\n%+v", err, image.Status)
	} else if image.Status.Failed != 1 {
		t.Errorf("IMG-058: failed: got %d, want 1\n%v\n%+v", image.Status.Failed, err, image.Status)
	}
	const note = ": PullImageFailed image app:1 on node n: node has not responded for a long time"
	if diff := cmp.Diff([]string{"ImagePullJob warm" + note, "NodeImage n" + note, "Other o" + note}, events.take()); diff != "" {
		t.Errorf("IMG-060: %s", diff)
	}
	if _ = pass(); len(events.list) != 0 {
		t.Errorf("IMG-060: told again: %v", events.list)
	}
}

// IMG-070 to IMG-074, IMG-219: the nodes of a job, in the order in which they pull.
func TestNodesOfJobs(t *testing.T) {
	var objects []client.Object
	for name, pool := range map[string]string{"n1": "web", "n2": "db", "n3": "web", "n4": ""} {
		node := imagepulltest.Blank(name)
		node.ResourceVersion, node.Labels = "", map[string]string{"pool": pool}
		objects = append(objects, node)
	}
	pod := func(name, node string, change func(*corev1.Pod)) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady,
				Status: corev1.ConditionTrue, LastTransitionTime: *imagepulltest.At(0)}}}}
		if change != nil {
			change(p)
		}
		objects = append(objects, p)
	}
	pod("web-0", "n2", nil)
	pod("web-1", "n1", func(p *corev1.Pod) { p.Labels["tier"] = "first" })
	pod("web-2", "n3", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse })
	pod("web-3", "n1", nil)
	pod("finished", "n4", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	pod("unscheduled", "", nil)
	pod("going", "n4", func(p *corev1.Pod) { p.DeletionTimestamp, p.Finalizers = imagepulltest.At(0), []string{"f"} })
	pod("elsewhere", "n4", func(p *corev1.Pod) { p.Namespace = "other" })
	pod("stranger", "n4", func(p *corev1.Pod) { p.Labels["app"] = "db" })
	pod("lost", "n9", nil) // a node without NodeImage
	first := appsv1beta1.CloneSetUpdateStrategy{RollingUpdate: &appsv1beta1.RollingUpdateCloneSetStrategy{}}
	set := &appsv1beta1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: appsv1beta1.CloneSetSpec{UpdateStrategy: first}}
	c := fakeClient(t, append(objects, set)...)
	r := &JobReconciler{API: &own.API{Client: c, Live: c}}
	byPods := func(j *appsv1beta1.ImagePullJob) {
		j.Spec.PodSelector = &appsv1beta1.ImagePullJobPodSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}
	}
	ownedBy := func(version, kind, name string) func(*appsv1beta1.ImagePullJob) {
		return func(j *appsv1beta1.ImagePullJob) {
			byPods(j)
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: version, Kind: kind, Name: name, Controller: new(true)}}
		}
	}
	labelled := func(j *appsv1beta1.ImagePullJob) {
		j.Spec.Selector = &appsv1beta1.ImagePullJobNodeSelector{LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"pool": "web"}}}
	}
	check := func(name string, change func(*appsv1beta1.ImagePullJob), want string) {
		t.Helper()
		nodes, err := r.nodes(t.Context(), imagepulltest.Job(change))
		var got []string
		for _, node := range nodes {
			got = append(got, node.Name)
		}
		if err != nil {
			t.Errorf("%s: unexpected error: %v\n%v", name, err, got)
		} else if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %q\n%v", name, strings.Join(got, " "), want, err)
		}
	}
	check("IMG-072 no selector", func(*appsv1beta1.ImagePullJob) {}, "n1 n2 n3 n4")
	check("IMG-072 an empty selector", func(j *appsv1beta1.ImagePullJob) { j.Spec.Selector = &appsv1beta1.ImagePullJobNodeSelector{} },
		"n1 n2 n3 n4")
	check("IMG-072, IMG-073 names, in the given order", func(j *appsv1beta1.ImagePullJob) {
		j.Spec.Selector = &appsv1beta1.ImagePullJobNodeSelector{Names: []string{"n3", "n9", "n1"}}
	}, "n3 n1")
	check("IMG-072 labels", labelled, "n1 n3")
	check("IMG-070 pods: each node once, without those of pods that do not run here", byPods, "n2 n1 n3")
	check("IMG-071 pods of a CloneSet: not ready first", ownedBy("apps.kruise.io/v1alpha1", "CloneSet", "web"), "n3 n2 n1")
	check("IMG-071 pods of a StatefulSet: from the highest ordinal", ownedBy("apps.kruise.io/v1beta1", "StatefulSet", "web"), "n1 n3 n2")
	check("IMG-071 a CloneSet that is gone", ownedBy("apps.kruise.io/v1beta1", "CloneSet", "gone"), "n3 n2 n1")

	// IMG-074, IMG-219: a node that gets its label later, for example from the helper that has to run before
	// the first pull, joins.
	node := &appsv1beta1.NodeImage{}
	if err := c.Get(t.Context(), types.NamespacedName{Name: "n4"}, node); err != nil {
		t.Fatal(err)
	}
	node.Labels["pool"] = "web"
	if err := c.Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	check("IMG-074, IMG-219 a label that comes later", labelled, "n1 n3 n4")
	if err := c.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	check("IMG-074 a node that goes", labelled, "n1 n3")

	set.Spec.UpdateStrategy.RollingUpdate.PriorityStrategy = &pub.UpdatePriorityStrategy{WeightPriority: []pub.UpdatePriorityWeightTerm{
		{Weight: 50, MatchSelector: metav1.LabelSelector{MatchLabels: map[string]string{"tier": "first"}}}}}
	if err := c.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	check("IMG-071 the CloneSet's own priorities", ownedBy("apps.kruise.io/v1beta1", "CloneSet", "web"), "n1 n3 n2")
	sidecars := &appsv1beta1.SidecarSet{ObjectMeta: metav1.ObjectMeta{Name: "mesh"}}
	sidecars.Spec.UpdateStrategy.PriorityStrategy = set.Spec.UpdateStrategy.RollingUpdate.PriorityStrategy
	if err := c.Create(t.Context(), sidecars); err != nil {
		t.Fatal(err)
	}
	check("IMG-071 a SidecarSet's priorities", ownedBy("apps.kruise.io/v1alpha1", "SidecarSet", "mesh"), "n1 n3 n2")
	check("IMG-071 a SidecarSet that is gone: not ready first", ownedBy("apps.kruise.io/v1beta1", "SidecarSet", "gone"), "n3 n2 n1")
}

// IMG-112: without the namespace of the copies a job waits, and says why; when it is there the job goes on.
func TestSecretsNeedTheirNamespace(t *testing.T) {
	job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
		j.ResourceVersion, j.Status, j.Spec.PullSecrets = "", appsv1beta1.ImagePullJobStatus{}, []string{"login"}
	})
	source := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "login"}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{".dockerconfigjson": []byte("{}")}}
	missing := true
	base := fakeClient(t, job, source, func() client.Object { n := imagepulltest.Blank("n"); n.ResourceVersion = ""; return n }()).(client.WithWatch)
	c := interceptor.NewClient(base, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object,
		opts ...client.CreateOption) error {
		if missing && o.GetNamespace() == "config" {
			return apierrors.NewNotFound(corev1.Resource("namespaces"), "config")
		}
		return c.Create(ctx, o, opts...)
	}})
	events := &told{}
	m := newMeters()
	r := &JobReconciler{API: own.NewAPI(c, c, slim.Any, func() time.Time { return imagepulltest.Noon }), Events: own.NewRecorder(events),
		Secrets: &Secrets{API: &own.API{Client: c, Live: c, Now: time.Now}, Namespace: "config",
			Copies: m.copies}, Random: func() float64 { return 0 }, meters: m}
	loop := r.controller().Loop(nil)
	request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)}
	if _, err := loop.Reconcile(t.Context(), request); err == nil {
		t.Error("no error, so no other try")
	}
	if got := events.take(); len(got) != 1 {
		t.Errorf("number of results: got %d, want 1\n%v", len(got), got)
	} else if !strings.Contains(got[0], "ImagePullJob warm: FailedSyncSecrets") {
		t.Errorf("first result: got %q, want it to contain %q\n%v", got[0], "ImagePullJob warm: FailedSyncSecrets",
			got)
	} else if !strings.Contains(got[0], `"config" not found`) {
		t.Errorf("first result: got %q, want it to contain %q\n%v", got[0], `"config" not found`, got)
	}
	node := &appsv1beta1.NodeImage{}
	if err := c.Get(t.Context(), types.NamespacedName{Name: "n"}, node); err != nil {
		t.Errorf("assigned without its secret: reading the node: unexpected error: %v\n%v", err,
			node.Spec.Images)
	} else if len(node.Spec.Images) != 0 {
		t.Errorf("assigned without its secret: number of images of the node: got %d, want 0\n%v\n%v",
			len(node.Spec.Images), err, node.Spec.Images)
	}
	missing = false
	if _, err := loop.Reconcile(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), types.NamespacedName{Name: "n"}, node); err != nil {
		t.Errorf("reading the node: unexpected error: %v\n%v", err, node.Spec.Images)
	} else if len(node.Spec.Images["app"].PullSecrets) != 1 {
		t.Errorf("number of pull secrets of the image app of the node: got %d, want 1\n%v\n%v",
			len(node.Spec.Images["app"].PullSecrets), err,
			node.Spec.Images)
	}
	if got := testutil.ToFloat64(m.copies); got != 1 { // IMG-205
		t.Errorf("%v copies are counted", got)
	}
}

// IMG-121, IMG-227: a job can be deleted when the namespace of the copies is gone, and the right to look into
// it with it, or while it terminates; an API server that is only away is no reason to forget copies.
func TestDeletionWithoutTheNamespace(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("secrets"), "", errors.New("no role"))
	for name, test := range map[string]struct {
		list      error
		namespace bool
		deleted   bool
		leaving   bool
	}{
		"an empty namespace":                    {nil, true, true, false},
		"no namespace, rights by cluster":       {nil, false, true, false},
		"no namespace and no right":             {forbidden, false, true, false},
		"the namespace is there, no right":      {forbidden, true, false, false},
		"the API server is away":                {apierrors.NewTimeoutError("away", 1), true, false, false},
		"the API server is away, nothing in":    {apierrors.NewTimeoutError("away", 1), false, false, false},
		"the namespace terminates, no right":    {forbidden, true, true, true},
		"it terminates, the API server is away": {apierrors.NewTimeoutError("away", 1), true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
				j.ResourceVersion, j.DeletionTimestamp, j.Spec.PullSecrets = "", imagepulltest.At(0), []string{"login"}
			})
			objects := []client.Object{job}
			if test.namespace {
				namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "config"}}
				if test.leaving {
					namespace.DeletionTimestamp, namespace.Finalizers = imagepulltest.At(0), []string{"other/held"}
				}
				objects = append(objects, namespace)
			}
			c := interceptor.NewClient(fakeClient(t, objects...).(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context,
				c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if list.GetObjectKind().GroupVersionKind().Kind == "SecretList" && test.list != nil {
					return test.list
				}
				return c.List(ctx, list, opts...)
			}})
			r := &JobReconciler{API: own.NewAPI(c, c, slim.Any, func() time.Time { return imagepulltest.Noon }), Events: own.NewRecorder(&told{}),
				Secrets: secretsOn(c)}
			loop := r.controller().Loop(nil)
			_, err := loop.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
			got := c.Get(t.Context(), client.ObjectKeyFromObject(job), job)
			if apierrors.IsNotFound(got) != test.deleted {
				t.Errorf("the error is that it is not found: got %t, want %t; %v, then %v", apierrors.IsNotFound(got),
					test.deleted, err, got)
			}
			if (err == nil) != test.deleted {
				t.Errorf("no error: got %t, want %t; %v, then %v", err == nil, test.deleted, err, got)
			}
		})
	}
}

// IMG-003, IMG-152, IMG-160: what a list does is told with the reasons that Kubernetes' own controllers use.
func TestListTellsWhatItDoes(t *testing.T) {
	list := &appsv1beta1.ImageListPullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "all", UID: "l"},
		Spec: appsv1beta1.ImageListPullJobSpec{Images: []string{"a", "b"}}}
	var failing error
	made := 0
	c := fake.NewClientBuilder().WithScheme(schemeOf(t)).WithObjects(list).WithStatusSubresource(list).WithIndex(&appsv1beta1.ImagePullJob{}, childrenOf, indexChildren).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if failing != nil {
					return failing
				}
				made++
				o.SetName(fmt.Sprint("all-", o.(*appsv1beta1.ImagePullJob).Spec.Image))
				o.SetUID(types.UID(o.GetName()))
				return c.Create(ctx, o, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				if failing != nil {
					return failing
				}
				return c.Delete(ctx, o, opts...)
			},
		}).Build()
	events := &told{}
	r := &ListReconciler{API: own.NewAPI(c, c, slim.Any, func() time.Time { return imagepulltest.Noon }), Events: own.NewRecorder(events)}
	loop := r.controller().Loop(nil)
	expect := func(what string, want ...string) {
		t.Helper()
		_, err := loop.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(list)})
		if (err != nil) != (failing != nil) {
			t.Errorf("%s: an error: got %t, want %t\n%v", what, err != nil, failing != nil, err)
		}
		if diff := cmp.Diff(want, events.take()); diff != "" {
			t.Errorf("%s: events (-want +got):\n%s", what, diff)
		}
	}
	change := func(images ...string) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(list), list); err != nil {
			t.Fatal(err)
		}
		list.Spec.Images = images
		if err := c.Update(t.Context(), list); err != nil {
			t.Fatal(err)
		}
	}
	failing = errors.New("quota")
	expect("nothing can be made: one try, not one for each image",
		"ImageListPullJob all: FailedCreate creating the ImagePullJob for image a: quota")
	failing = nil
	expect("all are made", "ImageListPullJob all: SuccessfulCreate created ImagePullJob all-a for image a",
		"ImageListPullJob all: SuccessfulCreate created ImagePullJob all-b for image b")
	expect("nothing to do")
	change("b")
	failing = errors.New("denied")
	expect("it cannot be deleted", "ImageListPullJob all: FailedDelete deleting ImagePullJob all-a: denied")
	failing = nil
	expect("an image left", "ImageListPullJob all: SuccessfulDelete deleted ImagePullJob all-a for image a")
	if made != 2 {
		t.Errorf("%d jobs were made", made)
	}
}

// IMG-205: running jobs, and the results of nodes by what asked for them.
func TestJobsAndResultsAreCounted(t *testing.T) {
	m := newMeters()
	own, listed := imagepulltest.Job(), imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
		j.Name, j.OwnerReferences = "listed", []metav1.OwnerReference{{Kind: "ImageListPullJob", Controller: new(true)}}
	})
	m.observe(own, &imagepull.JobPlan{}, true)
	m.observe(own, &imagepull.JobPlan{}, true)
	m.observe(listed, &imagepull.JobPlan{}, true)
	if got := testutil.ToFloat64(m.running); got != 2 {
		t.Errorf("%v run", got)
	}
	end := &imagepull.JobPlan{Status: &appsv1beta1.ImagePullJobStatus{CompletionTime: imagepulltest.At(0), Succeeded: 5, Failed: 2}}
	m.observe(listed, end, true)
	m.observe(listed, &imagepull.JobPlan{}, false)
	if got := testutil.ToFloat64(m.running); got != 1 {
		t.Errorf("%v run, one has ended", got)
	}
	for result, want := range map[string]float64{"succeeded": 5, "failed": 2} {
		if got := testutil.ToFloat64(m.results.WithLabelValues("ImageListPullJob", result)); got != want {
			t.Errorf("%s: got %v, want %v", result, got, want)
		}
	}
	m.forget(client.ObjectKeyFromObject(own))
	if got := testutil.ToFloat64(m.running); got != 0 {
		t.Errorf("%v run, none is left", got)
	}
	for _, collector := range m.all() {
		if problems, err := testutil.CollectAndLint(collector); err != nil {
			t.Errorf("unexpected error: %v\n%v", err, problems)
		} else if len(problems) != 0 {
			t.Errorf("number of problems: got %d, want 0\n%v\n%v", len(problems), problems, err)
		}
	}
}
