package containerrecreate

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/containerrecreate/containerrecreatetest"
)

// asked is a new request for app and proxy, as a user writes it.
func asked(changes ...func(*appsv1beta1.ContainerRecreateRequest)) *appsv1beta1.ContainerRecreateRequest {
	r := &appsv1beta1.ContainerRecreateRequest{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "restart"},
		Spec: appsv1beta1.ContainerRecreateRequestSpec{PodName: "web-7",
			Containers: []appsv1beta1.ContainerRecreateRequestContainer{{Name: "app"}, {Name: "proxy"}}}}
	for _, change := range changes {
		change(r)
	}
	return r
}

// CRR-022 to CRR-026 (part), CRR-031 (part), CRR-032 (part): what is wrong with a request is told, each by
// itself, and what is just allowed is not.
func TestCheck(t *testing.T) {
	type request = *appsv1beta1.ContainerRecreateRequest
	strategy := func(s appsv1beta1.ContainerRecreateRequestStrategy) func(request) {
		return func(r request) { r.Spec.Strategy = &s }
	}
	first := func(change func(*appsv1beta1.ContainerRecreateRequestContainer)) func(request) {
		return func(r request) { change(&r.Spec.Containers[0]) }
	}
	for name, tt := range map[string]struct {
		change func(request)
		want   string // empty: it is accepted
	}{
		"as it is":              {func(request) {}, ""},
		"no pod":                {func(r request) { r.Spec.PodName = "" }, "spec.podName"},
		"no containers":         {func(r request) { r.Spec.Containers = nil }, "spec.containers list"},
		"the shortest deadline": {func(r request) { r.Spec.ActiveDeadlineSeconds = new(int64(3)) }, ""},
		"a shorter one":         {func(r request) { r.Spec.ActiveDeadlineSeconds = new(int64(2)) }, "can not be less than 3s, it is 2"},
		"no time to live":       {func(r request) { r.Spec.TTLSecondsAfterFinished = new(int32(0)) }, ""},
		"less than that": {func(r request) { r.Spec.TTLSecondsAfterFinished = new(int32(-1)) },
			"spec.ttlSecondsAfterFinished must be non-negative integer, it is -1"},
		"an empty strategy": {strategy(appsv1beta1.ContainerRecreateRequestStrategy{}), ""},
		"all zero": {strategy(appsv1beta1.ContainerRecreateRequestStrategy{TerminationGracePeriodSeconds: new(int64(0)),
			UnreadyGracePeriodSeconds: new(int64(0)), FailurePolicy: "Ignore"}), ""},
		"a negative termination": {strategy(appsv1beta1.ContainerRecreateRequestStrategy{TerminationGracePeriodSeconds: new(int64(-1))}),
			"spec.strategy.terminationGracePeriodSeconds"},
		"a negative grace": {strategy(appsv1beta1.ContainerRecreateRequestStrategy{UnreadyGracePeriodSeconds: new(int64(-1))}),
			"spec.strategy.unreadyGracePeriodSeconds"},
		"a negative start": {strategy(appsv1beta1.ContainerRecreateRequestStrategy{MinStartedSeconds: -1}),
			"spec.strategy.minStartedSeconds"},
		"another policy": {strategy(appsv1beta1.ContainerRecreateRequestStrategy{FailurePolicy: "Retry"}),
			`unknown failurePolicy "Retry"`},
		"one twice": {func(r request) { r.Spec.Containers[1].Name = "app" },
			"spec.containers[1]: can not recreate app multi times"},
		"a hook": {first(func(c *appsv1beta1.ContainerRecreateRequestContainer) {
			c.PreStop = &appsv1beta1.ProbeHandler{Exec: &corev1.ExecAction{}}
		}),
			"spec.containers[0]: preStop, ports and statusContext"},
		"ports": {first(func(c *appsv1beta1.ContainerRecreateRequestContainer) { c.Ports = []corev1.ContainerPort{{}} }),
			"read-only"},
		"a status": {first(func(c *appsv1beta1.ContainerRecreateRequestContainer) {
			c.StatusContext = &appsv1beta1.ContainerRecreateRequestContainerContext{ContainerID: "a"}
		}), "read-only"},
	} {
		switch refusal := Check(asked(tt.change)); {
		case tt.want == "" && refusal != nil:
			t.Errorf("%s: refused with %q, want it accepted", name, refusal.Message)
		case tt.want != "" && (refusal == nil || !strings.Contains(refusal.Message, tt.want) || strings.Contains(refusal.Message, ";") ||
			refusal.Code != http.StatusBadRequest):
			t.Errorf("%s: got %+v, want code 400 and %q alone", name, refusal, tt.want)
		}
	}
	two := Check(asked(func(r request) { r.Spec.PodName, r.Spec.Containers = "", nil }))
	if two == nil {
		t.Error("two mistakes: two: got nil, want a value")
	} else if strings.Count(two.Message, "; ") != 1 {
		t.Errorf("two mistakes: number of separators: got %d, want 1\n%+v", strings.Count(two.Message, "; "), two)
	}
	one, other := &Refusal{Code: 400, Message: "a"}, &Refusal{Code: 403, Message: "b"}
	if got := Both(one, other); *got != (Refusal{Code: 400, Message: "a; b"}) {
		t.Errorf("two refusals: got %+v, want code 400 and both messages", got)
	}
	if got := Both(one, nil); got != one {
		t.Errorf("the first refusal alone: got %+v, want %+v", got, one)
	}
	if got := Both(nil, other); got != other {
		t.Errorf("the second refusal alone: got %+v, want %+v", got, other)
	}
	if got := Both(nil, nil); got != nil {
		t.Errorf("no refusals: got %+v, want none", got)
	}
}

// CRR-028 (part), CRR-029 (part): a pod that ends, or has no node, has nothing to recreate; one whose
// sidecars alone were ended has.
func TestCheckPod(t *testing.T) {
	ended := func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }
	failed := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: containerrecreatetest.Noon} }
	sidecars := func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: pub.SidecarTerminated})
	}
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"running":                    {containerrecreatetest.Pod(), ""},
		"ended":                      {containerrecreatetest.Pod(ended), "its phase is Succeeded"},
		"failed":                     {containerrecreatetest.Pod(failed), "its phase is Failed"},
		"being deleted":              {containerrecreatetest.Pod(deleted), "is being deleted"},
		"its sidecars were ended":    {containerrecreatetest.Pod(ended, sidecars), ""},
		"and it is being deleted":    {containerrecreatetest.Pod(deleted, sidecars), ""},
		"pending":                    {containerrecreatetest.Pod(func(p *corev1.Pod) { p.Spec.NodeName = "" }), "has no node yet"},
		"pending, and being deleted": {containerrecreatetest.Pod(deleted, func(p *corev1.Pod) { p.Spec.NodeName = "" }), "is being deleted"},
		"sidecars ended on no node":  {containerrecreatetest.Pod(sidecars, func(p *corev1.Pod) { p.Spec.NodeName = "" }), "has no node yet"},
		"static": {containerrecreatetest.Pod(func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "5f0c3b4c8b1d7f0e"}
		}), "is the mirror of a file on node"},
		"with nothing but conditions": {containerrecreatetest.Pod(func(p *corev1.Pod) { p.Status.Phase = "" }), ""},
	} {
		if refusal := CheckPod(tt.pod); tt.want == "" && refusal != nil || tt.want != "" && (refusal == nil ||
			!strings.Contains(refusal.Message, tt.want)) {
			t.Errorf("%s: got %+v, want a refusal with %q", name, refusal, tt.want)
		}
	}
}

// words are the operations of a patch, as they stand in it.
func words(t *testing.T, patch []jsonpatch.Operation) []string {
	t.Helper()
	var out []string
	for _, operation := range patch {
		value, err := json.Marshal(operation.Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, operation.Operation+" "+operation.Path+" "+string(value))
	}
	return out
}

// CRR-011 (part), CRR-033 to CRR-035 (part): what a new request gets, and which containers it may name.
func TestAccept(t *testing.T) {
	given := func(policy appsv1beta1.ContainerRecreateRequestFailurePolicyType) func(*appsv1beta1.ContainerRecreateRequest) {
		return func(r *appsv1beta1.ContainerRecreateRequest) {
			r.Spec.Strategy = &appsv1beta1.ContainerRecreateRequestStrategy{FailurePolicy: policy}
		}
	}
	labels := []string{`add /metadata/labels/crr.apps.kruise.io~1active "true"`, `add /metadata/labels/crr.apps.kruise.io~1pod-uid "pod-1"`}
	for name, tt := range map[string]struct {
		request *appsv1beta1.ContainerRecreateRequest
		policy  []string
	}{
		"no strategy":       {asked(), []string{`add /spec/strategy {"failurePolicy":"Fail"}`}},
		"an empty strategy": {asked(given("")), []string{`add /spec/strategy/failurePolicy "Fail"`}},
		"a policy":          {asked(given("Ignore")), nil},
	} {
		_, patch, refusal := Accept(tt.request, true, specified())
		if refusal != nil {
			t.Fatalf("refusal: got %+v, want nil\n%q", refusal, refusal.Message)
		}
		if diff := cmp.Diff(append(labels[:2:2], tt.policy...), words(t, patch)); diff != "" {
			t.Errorf("%s: what is written (-want +got):\n%s", name, diff)
		}
	}
	if _, patch, _ := Accept(asked(given("Fail")), false, specified()); len(patch) != 3 {
		t.Errorf("without labels: number of operations: got %d, want 3\n%v", len(patch), patch)
	} else if patch[0].Path != "/metadata/labels" {
		t.Errorf("without labels: path of the first of the patch: got %q, want %q\n%v", patch[0].Path,
			"/metadata/labels", patch)
	}
	forged := asked(given("Fail"), func(r *appsv1beta1.ContainerRecreateRequest) { r.Labels = map[string]string{pub.RecreateNodeName: "n"} })
	if _, patch, _ := Accept(forged, true, specified()); len(patch) != 3 {
		t.Errorf("with the name of a node: number of operations: got %d, want 3\n%v", len(patch), patch)
	} else if patch[2].Operation != "remove" {
		t.Errorf("with the name of a node: operation of the third of the patch: got %q, want %q\n%v",
			patch[2].Operation, "remove", patch)
	}
	// CRR-033: made for a pod of that name that is gone; owners of other kinds and names say nothing of the
	// pod.
	for name, tt := range map[string]struct {
		owner   metav1.OwnerReference
		refused bool
	}{
		"the pod":       {metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "web-7", UID: specified().UID}, false},
		"a former pod":  {metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "web-7", UID: "former"}, true},
		"another pod":   {metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "web-8", UID: "former"}, false},
		"another kind":  {metav1.OwnerReference{APIVersion: "v1", Kind: "Job", Name: "web-7", UID: "former"}, false},
		"another group": {metav1.OwnerReference{APIVersion: "x/v1", Kind: "Pod", Name: "web-7", UID: "former"}, false},
	} {
		owned := asked(func(r *appsv1beta1.ContainerRecreateRequest) { r.OwnerReferences = []metav1.OwnerReference{tt.owner} })
		_, _, refusal := Accept(owned, true, specified())
		if (refusal != nil) != tt.refused {
			t.Errorf("%s: got %+v, want a refusal: %t", name, refusal, tt.refused)
		} else if tt.refused && refusal.Code != 400 {
			t.Errorf("%s: got %+v, want code 400", name, refusal)
		} else if tt.refused && !strings.Contains(refusal.Message, "metadata.ownerReferences[0]") {
			t.Errorf("%s: refused with %q, want the field in it", name, refusal.Message)
		}
	}
	always := corev1.ContainerRestartPolicyAlways
	never := corev1.ContainerRestartPolicyNever
	initial := func(policy *corev1.ContainerRestartPolicy) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "first"}, {Name: "app", RestartPolicy: policy}}
			p.Spec.Containers = p.Spec.Containers[:0]
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "app", ContainerID: "c://side"}}
		}
	}
	one := func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.Containers = r.Spec.Containers[:1] }
	for name, tt := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"there": {specified(), ""},
		"not there": {specified(func(p *corev1.Pod) { p.Spec.Containers[1].Name = "other" }),
			"spec.containers[0]: container app not found in Pod web-7"},
		"without a status": {specified(func(p *corev1.Pod) { p.Status.ContainerStatuses[1].Name = "other" }),
			"not found app containerStatus"},
		"without an ID": {specified(func(p *corev1.Pod) { p.Status.ContainerStatuses[1].ContainerID = "" }),
			"no containerID in app containerStatus"},
		"an init container that runs on":  {specified(initial(&always)), ""},
		"one that ends":                   {specified(initial(nil)), "is an init container that does not run on"},
		"one that is never started again": {specified(initial(&never)), "is an init container that does not run on"},
	} {
		if _, _, refusal := Accept(asked(one), true, tt.pod); tt.want == "" && refusal != nil || tt.want != "" && (refusal == nil ||
			!strings.Contains(refusal.Message, tt.want)) {
			t.Errorf("%s: got %+v, want a refusal with %q", name, refusal, tt.want)
		}
	}
}

// specified is the pod with its containers in its spec.
func specified(changes ...func(*corev1.Pod)) *corev1.Pod {
	return containerrecreatetest.Pod(append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Name: "proxy"},
			{Name: "app"}}
	}},
		changes...)...)
}

// CRR-035 to CRR-040 (part): the facts about the pod that the system fills in.
func TestFill(t *testing.T) {
	hook := func(handler corev1.LifecycleHandler) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[1].Lifecycle = &corev1.Lifecycle{PreStop: &handler}
			p.Spec.Containers[1].Ports = []corev1.ContainerPort{{ContainerPort: 80}}
		}
	}
	http := corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/stop"}}
	tcp := corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}
	run := corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"stop"}}}
	app := asked(func(r *appsv1beta1.ContainerRecreateRequest) {
		r.Spec.Containers = r.Spec.Containers[:1]
		r.Labels = map[string]string{pub.RecreatePodUID: "pod-1"}
	})
	base := []string{`add /metadata/labels/crr.apps.kruise.io~1node-name "node-a"`, `add /spec/strategy {}`}
	const context, ports = `add /spec/containers/0/statusContext {"containerID":"c://app-1","restartCount":1}`, `add /spec/containers/0/ports [{"containerPort":80}]`
	for name, tt := range map[string]struct {
		pod    *corev1.Pod
		labels map[string]string
		want   []string
	}{
		"no hook": {specified(), nil, append(base[:2:2], context)},
		"a lifecycle alone": {specified(func(p *corev1.Pod) { p.Spec.Containers[1].Lifecycle = &corev1.Lifecycle{} }), nil,
			append(base[:2:2], context)},
		"a hook that waits": {specified(hook(corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}})), nil,
			append(base[:2:2], context)},
		"a command": {specified(hook(run)), nil, append(base[:2:2], context,
			`add /spec/containers/0/preStop {"exec":{"command":["stop"]}}`)},
		"a command of a megabyte": {specified(hook(corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{strings.Repeat("x", 1<<20)}}})), nil,
			append(base[:2:2], context)},
		"HTTP": {specified(hook(http)), nil, append(base[:2:2], context,
			`add /spec/containers/0/preStop {"httpGet":{"path":"/stop","port":0}}`, ports)},
		"TCP": {specified(hook(tcp)), nil, append(base[:2:2], context,
			`add /spec/containers/0/preStop {"tcpSocket":{"port":80}}`, ports)},
		"TCP without ports": {specified(hook(tcp), func(p *corev1.Pod) { p.Spec.Containers[1].Ports = []corev1.ContainerPort{} }), nil,
			append(base[:2:2], context, `add /spec/containers/0/preStop {"tcpSocket":{"port":80}}`)},
		"a grace period": {specified(func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(7)) }), nil,
			append(base[:2:2], `add /spec/strategy/terminationGracePeriodSeconds 7`, context)},
		"a virtual node": {specified(), map[string]string{pub.NodeType: pub.VirtualNode}, append(base[:1:1],
			`add /metadata/labels/type "virtual-kubelet"`, base[1], context)},
		"another type": {specified(), map[string]string{pub.NodeType: "x"}, append(base[:2:2], context)},
	} {
		filled, patch, refusal := Fill(app, tt.pod, tt.labels)
		if refusal != nil {
			t.Fatalf("refusal: got %+v, want nil\n%q", refusal, refusal.Message)
		}
		if diff := cmp.Diff(tt.want, words(t, patch)); diff != "" {
			t.Errorf("%s: what is patched (-want +got):\n%s", name, diff)
		}
		if !Fills(filled, app, tt.pod, tt.labels) {
			t.Errorf("%s: what was filled in passes for something else", name)
		}
		for what, change := range map[string]func(*appsv1beta1.ContainerRecreateRequest){
			"another spec": func(r *appsv1beta1.ContainerRecreateRequest) { r.Spec.Containers[0].Name = "x" },
			"another node": func(r *appsv1beta1.ContainerRecreateRequest) { r.Labels[pub.RecreateNodeName] = "x" },
			"another pod":  func(r *appsv1beta1.ContainerRecreateRequest) { r.Labels[pub.RecreatePodUID] = "x" },
		} {
			wrong := filled.DeepCopy()
			if change(wrong); Fills(wrong, app, tt.pod, tt.labels) {
				t.Errorf("%s: %s passes for the facts", name, what)
			}
		}
	}
	filled, _, _ := Fill(app, specified(), nil)
	if Fills(filled, app, nil, nil) {
		t.Error("a request passes without a pod")
	} else if Fills(filled, filled, specified(), nil) {
		t.Error("a request passes that is filled already")
	} else if Fills(filled, app,
		specified(func(p *corev1.Pod) { p.UID = "x" }), nil) {
		t.Error("a request passes for another pod of its name")
	} else if Fills(filled, app, specified(func(p *corev1.Pod) { p.Spec.Containers = nil }), nil) {
		t.Error("a request passes for a pod without the container")
	}
	own := app.DeepCopy()
	own.Spec.Strategy = &appsv1beta1.ContainerRecreateRequestStrategy{TerminationGracePeriodSeconds: new(int64(1))}
	if filled, patch, _ := Fill(own, specified(func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(7)) }),
		nil); *filled.Spec.Strategy.TerminationGracePeriodSeconds != 1 {
		t.Errorf("the request's own grace period: grace period in seconds of the strategy: got %d, want 1\n%v",
			*filled.Spec.Strategy.TerminationGracePeriodSeconds, patch)
	} else if len(patch) != 2 {
		t.Errorf("the request's own grace period: number of operations: got %d, want 2\n%v", len(patch), patch)
	}
	if _, _, refusal := Fill(app, specified(func(p *corev1.Pod) { p.Spec.Containers = nil }), nil); refusal == nil {
		t.Error("a container that is gone is filled in")
	}
}

// CRR-045 to CRR-048 (part): what of a request stays as it is.
func TestCheckUpdate(t *testing.T) {
	type request = *appsv1beta1.ContainerRecreateRequest
	for name, tt := range map[string]struct {
		change           func(request)
		acquired, before string
		want             string
	}{
		"nothing":       {func(request) {}, "", "", ""},
		"its status":    {func(r request) { r.Status.Message = "x" }, "", "", ""},
		"another label": {func(r request) { r.Labels["x"] = "y" }, "", "", ""},
		"its spec":      {func(r request) { r.Spec.PodName = "x" }, "", "", "spec of ContainerRecreateRequest is immutable"},
		"the pod": {func(r request) { r.Labels[pub.RecreatePodUID] = "x" }, "", "",
			`immutable label crr.apps.kruise.io/pod-uid: it must stay "pod-1"`},
		"the node": {func(r request) { r.Labels[pub.RecreateNodeName] = "x" }, "", "",
			`immutable label crr.apps.kruise.io/node-name: it must stay "node-a"`},
		"no node":                   {func(r request) { delete(r.Labels, pub.RecreateNodeName) }, "", "", "immutable label"},
		"it is held now":            {func(request) {}, "now", "", ""},
		"it is held as before":      {func(request) {}, "then", "then", ""},
		"it is held otherwise":      {func(request) {}, "now", "then", "immutable annotation"},
		"it is not held any longer": {func(request) {}, "", "then", "immutable annotation"},
	} {
		updated := containerrecreatetest.Request()
		tt.change(updated)
		if refusal := CheckUpdate(updated, containerrecreatetest.Request(), tt.acquired, tt.before); tt.want == "" && refusal != nil ||
			tt.want != "" && (refusal == nil || !strings.Contains(refusal.Message, tt.want) || refusal.Code != http.StatusForbidden) {
			t.Errorf("%s: got %+v, want a refusal with code 403 and %q", name, refusal, tt.want)
		}
	}
	empty := containerrecreatetest.Request(func(r request) { r.Labels[pub.RecreateNodeName] = "" })
	if CheckUpdate(containerrecreatetest.Request(func(r request) { delete(r.Labels, pub.RecreateNodeName) }), empty, "", "") == nil {
		t.Error("an empty label may be removed")
	}
}
