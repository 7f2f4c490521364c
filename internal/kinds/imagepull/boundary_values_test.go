package imagepull

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-097 (part): everything that an image has in a NodeImage takes room, and as much as is allowed is, to
// the byte.
func TestRoomInANodeImage(t *testing.T) {
	full := func() *appsv1beta1.ImageSpec {
		return &appsv1beta1.ImageSpec{SandboxConfig: &appsv1beta1.SandboxConfig{Labels: map[string]string{"a": "b"}},
			PullSecrets: []appsv1beta1.ReferenceObject{{Namespace: "n", Name: "s"}},
			Tags:        []appsv1beta1.ImageTagSpec{{Tag: "1", OwnerReferences: []corev1.ObjectReference{{Namespace: "n", Name: "j"}}}}}
	}
	before := sizeOf("app", full())
	for what, more := range map[string]func(*appsv1beta1.ImageSpec){
		"a label":                func(i *appsv1beta1.ImageSpec) { i.SandboxConfig.Labels["a"] = "bc" },
		"an annotation":          func(i *appsv1beta1.ImageSpec) { i.SandboxConfig.Annotations = map[string]string{"a": ""} },
		"a secret's name":        func(i *appsv1beta1.ImageSpec) { i.PullSecrets[0].Name = "se" },
		"a secret's namespace":   func(i *appsv1beta1.ImageSpec) { i.PullSecrets[0].Namespace = "na" },
		"the name of a job":      func(i *appsv1beta1.ImageSpec) { i.Tags[0].OwnerReferences[0].Name = "jo" },
		"the namespace of a job": func(i *appsv1beta1.ImageSpec) { i.Tags[0].OwnerReferences[0].Namespace = "na" },
	} {
		image := full()
		if more(image); sizeOf("app", image) != before+1 {
			t.Errorf("%s of one byte more takes %d", what, sizeOf("app", image)-before)
		}
	}
	if sizeOf("apps", full()) < before+3 {
		t.Error("the name of an image does not take the room that it has in the spec, the status and the ID")
	}
	longer := full()
	if longer.Tags[0].Tag = "12"; sizeOf("app", longer) < before+2 {
		t.Error("a tag does not take the room that it has in the spec and the status")
	}

	job := imagepulltest.Job()
	added := sizeOf("app", &appsv1beta1.ImageSpec{Tags: []appsv1beta1.ImageTagSpec{{Tag: "1",
		OwnerReferences: []corev1.ObjectReference{{Namespace: "shop", Name: "warm"}}}}})
	holding := func(namespace string, bytes int) *appsv1beta1.NodeImage {
		image := appsv1beta1.ImageSpec{Tags: []appsv1beta1.ImageTagSpec{{Tag: "1",
			OwnerReferences: []corev1.ObjectReference{{Namespace: namespace}}}}}
		image.Tags[0].OwnerReferences[0].Name = strings.Repeat("x", bytes-sizeOf("i", &image))
		n := imagepulltest.Blank("n")
		n.Spec.Images = map[string]appsv1beta1.ImageSpec{"i": image}
		return n
	}
	for name, tt := range map[string]struct {
		node *appsv1beta1.NodeImage
		want string
	}{
		"all that is allowed":                {holding("other", maxBytes-added), ""},
		"one byte more":                      {holding("other", maxBytes-added+1), "at most 1024 KiB"},
		"all of the namespace":               {holding("shop", maxBytesOfNamespace-added), ""},
		"one byte more of the namespace":     {holding("shop", maxBytesOfNamespace-added+1), "at most 384 KiB of one namespace"},
		"one byte more of another namespace": {holding("other", maxBytesOfNamespace-added+1), ""},
	} {
		if got := noRoom(tt.node, job, "app", "1", nil); got != tt.want {
			t.Errorf(`%s: want of room: got %q, want %q`, name, got, tt.want)
		}
	}
}

// A job that would choose how the node's runtime works is refused.
func TestSandboxConfigForTheRuntimeIsRefused(t *testing.T) {
	for key, allowed := range map[string]bool{"io.containerd.cri.runtime-handler": false, "example.com/p2p": true} {
		job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
			j.Spec.SandboxConfig = &appsv1beta1.SandboxConfig{Annotations: map[string]string{key: "x"}}
		})
		if err := CheckJob(job, nil); (err == nil) != allowed {
			t.Errorf("%s: no error: got %t, want %t\n%v", key, err == nil, allowed, err)
		}
	}
}

// IMG-097 (part): a sandboxConfig of 4 KiB goes to the nodes; a larger one is refused, and none of it goes
// there.
func TestTheLargestSandboxConfig(t *testing.T) {
	for size, allowed := range map[int]bool{pub.MaxPullSandboxBytes: true, pub.MaxPullSandboxBytes + 1: false} {
		job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
			j.Spec.SandboxConfig = &appsv1beta1.SandboxConfig{Labels: map[string]string{"a": strings.Repeat("x", size-1)}}
		})
		if err := CheckJob(job, nil); (err == nil) != allowed {
			t.Errorf("%d bytes: %v", size, err)
		}
		if (sandboxOf(job) != nil) != allowed {
			t.Errorf("%d bytes go to the nodes: %v", size, !allowed)
		}
	}
}

// A plan is idle only if it does nothing at all; as many nodes to leave as to join are not nothing.
func TestAPlanIsIdleOnlyIfItDoesNothing(t *testing.T) {
	one, status := []string{"n"}, &appsv1beta1.ImagePullJobStatus{}
	if !(&JobPlan{Why: "x", After: 1}).Idle() {
		t.Error("the plan of a job that only waits is not idle")
	}
	if !(&NodePlan{Why: "x", After: 1}).Idle() {
		t.Error("the plan of a node that only waits is not idle")
	}
	for i, p := range []JobPlan{{Finish: true}, {AddFinalizer: true}, {Delete: true}, {Assign: one}, {Supply: one}, {Drop: one},
		{Status: status},
		{Assign: one, Supply: one}, {Assign: one, Drop: one}, {Supply: one, Drop: one}, {Assign: one, Status: status}} {
		if p.Idle() {
			t.Errorf("plan %d of a job is idle", i)
		}
	}
	for i, p := range []NodePlan{{Create: true}, {Delete: true}, {Relabel: true}, {Images: map[string]*appsv1beta1.ImageSpec{"a": nil}},
		{Status: &appsv1beta1.NodeImageStatus{}}} {
		if p.Idle() {
			t.Errorf("plan %d of a node is idle", i)
		}
	}
}

// IMG-092 (part), IMG-093 (part): a job whose nodes have all answered, some of them with a failure, is
// complete also after its deadline.
func TestAllHaveAnsweredBeforeTheDeadline(t *testing.T) {
	s := PlanJob(JobSnapshot{Job: imagepulltest.Job(until(60)), Now: imagepulltest.Noon.Add(time.Hour),
		Nodes: []*appsv1beta1.NodeImage{imagepulltest.Tagged("a", imagepulltest.Result("Succeeded",
			2)), imagepulltest.Tagged("b", imagepulltest.Result("Failed", 2))}}).Status
	if s.Message != "job has completed" {
		t.Errorf("message: got %q, want %q\n%+v", s.Message, "job has completed", s)
	}
	if s.Succeeded != 1 {
		t.Errorf("succeeded: got %d, want 1\n%+v", s.Succeeded, s)
	}
	if s.Failed != 1 {
		t.Errorf("failed: got %d, want 1\n%+v", s.Failed, s)
	}
	if s.CompletionTime == nil {
		t.Errorf("time of completion: got nil, want a value\n%+v", s)
	}
}

// IMG-099 (part): as many failed nodes as are listed are all of them, and nothing is said of more.
func TestAsManyFailedNodesAsAreListed(t *testing.T) {
	var nodes []*appsv1beta1.NodeImage
	for i := range maxFailed {
		nodes = append(nodes, imagepulltest.Tagged(fmt.Sprintf("n%03d", i), imagepulltest.Result("Failed", 2)))
	}
	s := PlanJob(JobSnapshot{Job: imagepulltest.Job(), Nodes: nodes, Now: imagepulltest.Noon}).Status
	if len(s.FailedNodes) != maxFailed {
		t.Errorf("number of failed nodes: got %d, want %d", len(s.FailedNodes), maxFailed)
	}
	if strings.Contains(s.Message, "listed") {
		t.Errorf("%d: message: got %q, want it not to contain %q", len(s.FailedNodes), s.Message, "listed")
	}
}

// IMG-090 (part): 0 seconds and 0 attempts more are what the user asked for, and a job that never ends keeps
// tags for a day, give or take ten minutes.
func TestPullPolicyOfANode(t *testing.T) {
	policy := func(job *appsv1beta1.ImagePullJob, random float64) *appsv1beta1.ImageTagPullPolicy {
		return Assigner{Job: job, Now: imagepulltest.Noon, Random: func() float64 { return random }}.pullPolicy()
	}
	given := func(timeout, backoff int32) func(*appsv1beta1.ImagePullJob) {
		return func(j *appsv1beta1.ImagePullJob) {
			j.Spec.PullPolicy = &appsv1beta1.PullPolicy{TimeoutSeconds: &timeout, BackoffLimit: &backoff}
		}
	}
	for _, tt := range [][4]int32{{0, 0, 0, 0}, {-1, -1, 600, 3}, {7, 101, 7, 100}} {
		if p := policy(imagepulltest.Job(given(tt[0], tt[1])), 0); *p.TimeoutSeconds != tt[2] {
			t.Errorf("timeout in seconds: got %d, want %d; %d s and %d times became %d s and %d times",
				*p.TimeoutSeconds, tt[2], tt[0], tt[1],
				*p.TimeoutSeconds, *p.BackoffLimit)
		} else if *p.BackoffLimit != tt[3] {
			t.Errorf("backoff limit: got %d, want %d; %d s and %d times became %d s and %d times", *p.BackoffLimit,
				tt[3], tt[0], tt[1],
				*p.TimeoutSeconds, *p.BackoffLimit)
		}
	}
	for random, want := range map[float64]int32{0: 86400 - 600, 0.25: 86400 - 300, 1: 86400 + 600} {
		if p := policy(imagepulltest.Job(never), random); *p.TTLSecondsAfterFinished != want {
			t.Errorf("by chance %v the tag is kept for %d s, want %d", random, *p.TTLSecondsAfterFinished, want)
		}
	}
}

// IMG-059 (part): a node has its ten minutes beyond the deadline, and what it told of the pull is kept when
// it is given up. IMG-062 (part): three seconds are not too soon.
func TestWhenAPullIsGivenUp(t *testing.T) {
	pulling := func() *appsv1beta1.NodeImage {
		n := imagepulltest.Tagged("n", imagepulltest.Result("Pulling", 2))
		n.Spec.Images["app"].Tags[0].PullPolicy.ActiveDeadlineSeconds = new(int64(60))
		n.Status.ImageStatuses["app"].Tags[0].Progress = 40
		return n
	}
	early := PlanNode(nodeSnapshot(pulling(), 11*time.Minute-3*time.Second))
	if !early.Idle() {
		t.Errorf("three seconds before: the early plan is idle: got false, want true; %s, again in %s",
			shownNode(early), early.After)
	}
	if early.After != 3*time.Second {
		t.Errorf("three seconds before: time to the next pass: got %v, want %v; %s, again in %s", early.After,
			3*time.Second, shownNode(early),
			early.After)
	}
	late := PlanNode(nodeSnapshot(pulling(), 11*time.Minute))
	if late.Status == nil {
		t.Errorf("%s: status: got nil, want a value", shownNode(late))
	} else if late.Status.ImageStatuses["app"].Tags[0].Progress != 40 {
		t.Errorf("%s: progress of the first tag of the image app: got %d, want 40\n%+v", shownNode(late),
			late.Status.ImageStatuses["app"].Tags[0].Progress, late.Status)
	} else if late.Status.ImageStatuses["app"].Tags[0].Phase != "Failed" {
		t.Errorf("%s: phase of the first tag of the image app: got %q, want %q\n%+v", shownNode(late),
			late.Status.ImageStatuses["app"].Tags[0].Phase, "Failed", late.Status)
	}
	unanswered := imagepulltest.Tagged("n", imagepulltest.Result("Pulling", 1))
	unanswered.Status.ImageStatuses["app"].Tags[0].Progress = 40
	if plan := PlanNode(nodeSnapshot(unanswered, 10*time.Minute)); plan.Status == nil {
		t.Error("the progress of another version is told of this one: status: got nil, want a value")
	} else if plan.Status.ImageStatuses["app"].Tags[0].Progress != 0 {
		t.Errorf("the progress of another version is told of this one: progress of the first tag of the image app: got %d, want 0\n%+v",
			plan.Status.ImageStatuses["app"].Tags[0].Progress, plan.Status)
	}
}

// IMG-023 (part), IMG-025 (part), IMG-026 (part): as many images as are allowed, what a tag lacks, and what
// is negative of it.
func TestCheckNodeImageAtItsBounds(t *testing.T) {
	images := func(count int) *appsv1beta1.NodeImage {
		n := imagepulltest.Blank("n")
		n.Spec.Images = map[string]appsv1beta1.ImageSpec{}
		for i := range count {
			n.Spec.Images[fmt.Sprintf("app%d", i)] = appsv1beta1.ImageSpec{}
		}
		return n
	}
	if err := CheckNodeImage(images(maxImages), nil); err != nil {
		t.Errorf("%d images: %v", maxImages, err)
	}
	if err := CheckNodeImage(images(maxImages+1), nil); err == nil {
		t.Errorf("%d images are allowed", maxImages+1)
	}
	if err := CheckNodeImage(images(maxImages+2), images(maxImages+2)); err != nil {
		t.Errorf("what is stored: %v", err)
	}
	for name, tt := range map[string]struct {
		change func(*appsv1beta1.ImageTagSpec)
		want   string
	}{
		"as it is": {func(*appsv1beta1.ImageTagSpec) {}, ""},
		"all zero": {func(s *appsv1beta1.ImageTagSpec) {
			s.Version = 0
			s.PullPolicy = &appsv1beta1.ImageTagPullPolicy{TimeoutSeconds: new(int32(0)), TTLSecondsAfterFinished: new(int32(0)),
				ActiveDeadlineSeconds: new(int64(0))}
		}, ""},
		"a negative version": {func(s *appsv1beta1.ImageTagSpec) { s.Version = -1 }, "version must not be negative, it is -1"},
		"a negative timeout": {func(s *appsv1beta1.ImageTagSpec) { s.PullPolicy.TimeoutSeconds = new(int32(-1)) },
			"pullPolicy.timeoutSeconds must not be negative, it is -1"},
		"a negative TTL": {func(s *appsv1beta1.ImageTagSpec) { s.PullPolicy.TTLSecondsAfterFinished = new(int32(-2)) },
			"pullPolicy.ttlSecondsAfterFinished must not be negative, it is -2"},
		"a negative deadline": {func(s *appsv1beta1.ImageTagSpec) { s.PullPolicy.ActiveDeadlineSeconds = new(int64(-3)) },
			"pullPolicy.activeDeadlineSeconds must not be negative, it is -3"},
		"no TTL": {func(s *appsv1beta1.ImageTagSpec) { s.PullPolicy.TTLSecondsAfterFinished = nil },
			"pullPolicy.ttlSecondsAfterFinished is missing"},
		"no time":                {func(s *appsv1beta1.ImageTagSpec) { s.CreatedAt = nil }, "createdAt is missing"},
		"no policy":              {func(s *appsv1beta1.ImageTagSpec) { s.PullPolicy = nil }, "pullPolicy is missing"},
		"another pull policy":    {func(s *appsv1beta1.ImageTagSpec) { s.ImagePullPolicy = "Never" }, "neither Always nor IfNotPresent"},
		"a policy that is known": {func(s *appsv1beta1.ImageTagSpec) { s.ImagePullPolicy = "Always" }, ""},
	} {
		n := imagepulltest.Tagged("n")
		tt.change(&n.Spec.Images["app"].Tags[0])
		if err := CheckNodeImage(n, nil); tt.want == "" && err != nil || tt.want != "" &&
			(err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
	for _, wrong := range []int{maxTold, maxTold + 1} {
		n := imagepulltest.Blank("n")
		n.Spec.Images = map[string]appsv1beta1.ImageSpec{"app": {Tags: slices.Repeat([]appsv1beta1.ImageTagSpec{{Tag: "1"}}, 1)}}
		var tags []appsv1beta1.ImageTagSpec
		for i := range wrong {
			tags = append(tags, appsv1beta1.ImageTagSpec{Tag: fmt.Sprint(i), CreatedAt: imagepulltest.At(0)})
		}
		n.Spec.Images["app"] = appsv1beta1.ImageSpec{Tags: tags}
		if err := CheckNodeImage(n, nil); err == nil {
			t.Errorf("check of the NodeImage: got nil, want an error; %d mistakes: %v", wrong, err)
		} else if strings.Contains(err.Error(), "and more") != (wrong > maxTold) {
			t.Errorf(`the error tells of more: got %t, want %t; %d mistakes: %v`, strings.Contains(err.Error(),
				"and more"),
				wrong > maxTold, wrong, err)
		}
	}
}

// IMG-038 (part): the deadline of a job that ends is not shorter than the timeout of a pull, if both are
// given.
func TestADeadlineBelowTheTimeout(t *testing.T) {
	timeout := func(j *appsv1beta1.ImagePullJob) {
		j.Spec.PullPolicy = &appsv1beta1.PullPolicy{TimeoutSeconds: new(int32(60))}
	}
	noTimeout := func(j *appsv1beta1.ImagePullJob) { j.Spec.PullPolicy = &appsv1beta1.PullPolicy{} }
	for name, tt := range map[string]struct {
		job     *appsv1beta1.ImagePullJob
		refused bool
	}{
		"shorter":        {imagepulltest.Job(timeout, until(59)), true},
		"equal":          {imagepulltest.Job(timeout, until(60)), false},
		"no deadline":    {imagepulltest.Job(timeout), false},
		"no timeout":     {imagepulltest.Job(noTimeout, until(1)), false},
		"no pull policy": {imagepulltest.Job(until(1)), false},
		"an unknown type": {imagepulltest.Job(timeout, until(59), func(j *appsv1beta1.ImagePullJob) { j.Spec.CompletionPolicy.Type = "" }),
			false},
	} {
		if err := CheckJob(tt.job, nil); (err != nil) != tt.refused {
			t.Errorf("%s: an error: got %t, want %t\n%v", name, err != nil, tt.refused, err)
		}
	}
}

// IMG-045 (part): 255 images are not too many.
func TestTheLongestList(t *testing.T) {
	list := &appsv1beta1.ImageListPullJob{}
	list.Spec.CompletionPolicy.Type = "Always"
	for i := range maxListed {
		list.Spec.Images = append(list.Spec.Images, fmt.Sprintf("app%d:1", i))
	}
	if err := CheckList(list, nil); err != nil {
		t.Errorf("%d images: %v", maxListed, err)
	}
	list.Spec.Images = append(list.Spec.Images, "one:more")
	if err := CheckList(list, nil); err == nil {
		t.Errorf("%d images are allowed", maxListed+1)
	}
}

// IMG-152 (part): of two jobs for one image the older is kept, and of two that are as old the first by name,
// in whichever order they come.
func TestTheOlderJobOfAListIsKept(t *testing.T) {
	list := &appsv1beta1.ImageListPullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "list", UID: "l"}}
	list.Spec.Images = []string{"app:1"}
	list.Spec.CompletionPolicy.Type = "Always"
	child := func(name string, age time.Duration) *appsv1beta1.ImagePullJob {
		j := &appsv1beta1.ImagePullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: *imagepulltest.At(-age)}}
		j.Spec.Image, j.Spec.ImagePullJobTemplate = "app:1", childTemplate(&list.Spec.ImagePullJobTemplate)
		return j
	}
	for name, tt := range map[string]struct {
		children []*appsv1beta1.ImagePullJob
		deleted  string
	}{
		"by age":  {[]*appsv1beta1.ImagePullJob{child("a", time.Minute), child("b", time.Hour)}, "a"},
		"by name": {[]*appsv1beta1.ImagePullJob{child("a", time.Hour), child("b", time.Hour)}, "b"},
	} {
		for range 2 {
			slices.Reverse(tt.children)
			plan := PlanList(list, tt.children, imagepulltest.Noon)
			if len(plan.Delete) != 1 {
				t.Errorf("%s: number deleted: got %d, want 1; %+v is deleted, want %s", name, len(plan.Delete),
					plan.Delete, tt.deleted)
			} else if plan.Delete[0].Name != tt.deleted {
				t.Errorf("%s: name of the first deleted: got %q, want %q; %+v is deleted, want %s", name,
					plan.Delete[0].Name, tt.deleted, plan.Delete,
					tt.deleted)
			}
		}
	}
}
