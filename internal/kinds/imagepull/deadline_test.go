package imagepull

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"testing"
	"time"

	jsonpatchapply "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// admitted is a job or list with the defaults of admission.
func admitted[T any](t *testing.T, object *T, list bool) *T {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var doc Document
	if err := decoder.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	operations, err := json.Marshal(DefaultJob(doc, list, false))
	if err != nil {
		t.Fatal(err)
	}
	patch, err := jsonpatchapply.DecodePatch(operations)
	if err != nil {
		t.Fatal(err)
	}
	if text, err = patch.Apply(text); err != nil {
		t.Fatal(err)
	}
	completed := new(T)
	if err := json.Unmarshal(text, completed); err != nil {
		t.Fatal(err)
	}
	return completed
}

// IMG-031, IMG-038, IMG-045 (part): a list with a deadline below the default timeout of 600 s makes jobs that
// are admitted, also where an older release has stored that timeout in the list. So are single jobs. A pull
// is given no longer than its job.
func TestADeadlineBelowTheDefaultTimeout(t *testing.T) {
	for name, test := range map[string]struct {
		deadline int64
		timeout  *int32
		stored   bool
		kind     appsv1beta1.CompletionPolicyType
		want     int32
	}{
		"no timeout":                        {deadline: 300, kind: appsv1beta1.CompletionAlways, want: 300},
		"no timeout, no type":               {deadline: 300, want: 300},
		"a shorter timeout":                 {deadline: 300, timeout: new(int32(60)), want: 60},
		"stored with the default of before": {deadline: 300, timeout: new(int32(600)), stored: true, want: 300},
		"a deadline of no time, stored":     {deadline: 0, timeout: new(int32(600)), stored: true, want: 0},
		"a negative deadline, stored":       {deadline: -1, timeout: new(int32(600)), stored: true, want: 0},
		"a long deadline":                   {deadline: 7200, want: 600},
	} {
		t.Run(name, func(t *testing.T) {
			template := appsv1beta1.ImagePullJobTemplate{CompletionPolicy: appsv1beta1.CompletionPolicy{Type: test.kind,
				ActiveDeadlineSeconds: &test.deadline}}
			if test.timeout != nil {
				template.PullPolicy = &appsv1beta1.PullPolicy{TimeoutSeconds: test.timeout}
			}
			list := &appsv1beta1.ImageListPullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "all", UID: "l"},
				Spec: appsv1beta1.ImageListPullJobSpec{Images: []string{"a"}, ImagePullJobTemplate: template}}
			if !test.stored {
				list = admitted(t, list, true)
				if err := CheckList(list, nil); err != nil {
					t.Fatal(err)
				}
				job := admitted(t, &appsv1beta1.ImagePullJob{Spec: appsv1beta1.ImagePullJobSpec{Image: "a",
					ImagePullJobTemplate: template}}, false)
				if err := CheckJob(job, nil); err != nil {
					t.Errorf("a single job: check of the job: unexpected error: %v; %v, timeout %d", err, err,
						*job.Spec.PullPolicy.TimeoutSeconds)
				} else if *job.Spec.PullPolicy.TimeoutSeconds != test.want {
					t.Errorf("a single job: timeout in seconds of the pull policy: got %d, want %d; %v, timeout %d",
						*job.Spec.PullPolicy.TimeoutSeconds,
						test.want, err, *job.Spec.PullPolicy.TimeoutSeconds)
				}
			}
			children := PlanList(list, nil, imagepulltest.Noon).Create
			if len(children) != 1 {
				t.Fatalf("%d jobs", len(children))
			}
			child := admitted(t, children[0], false)
			if err := CheckJob(child, nil); err != nil {
				t.Errorf("its job: check of the child: unexpected error: %v; %v, timeout %d", err, err,
					*child.Spec.PullPolicy.TimeoutSeconds)
			} else if *child.Spec.PullPolicy.TimeoutSeconds != test.want {
				t.Errorf("its job: timeout in seconds of the pull policy of the child: got %d, want %d; %v, timeout %d",
					*child.Spec.PullPolicy.TimeoutSeconds,
					test.want, err, *child.Spec.PullPolicy.TimeoutSeconds)
			}
			if again := PlanList(list, []*appsv1beta1.ImagePullJob{child}, imagepulltest.Noon); len(again.Create)+len(again.Delete) > 0 { // IMG-161
				t.Errorf("made again: %+v", again)
			}
		})
	}
}

// Whoever makes several mistakes is told of all of them, and nobody of what was stored before.
func TestAllMistakesOfAJobAreTold(t *testing.T) {
	job := &appsv1beta1.ImagePullJob{Spec: appsv1beta1.ImagePullJobSpec{Image: "A b",
		ImagePullJobTemplate: appsv1beta1.ImagePullJobTemplate{
			ImagePullPolicy: "Sometimes", CompletionPolicy: appsv1beta1.CompletionPolicy{Type: "Once",
				ActiveDeadlineSeconds: new(int64(-1))}}}}
	mistakes := func(err error) int {
		var list utilerrors.Aggregate
		if !errors.As(err, &list) {
			return 0
		}
		return len(list.Errors())
	}
	if err := CheckJob(job, nil); mistakes(err) != 4 {
		t.Errorf("a bad job: got %v, want 4 errors", err)
	}
	slower := job.DeepCopy()
	slower.Spec.Parallelism = new(intstr.FromString("0"))
	if err := CheckJob(slower, job); err != nil {
		t.Errorf("only the parallelism changed: %v", err)
	}
	list := &appsv1beta1.ImageListPullJob{Spec: appsv1beta1.ImageListPullJobSpec{Images: []string{"nginx", "docker.io/library/nginx:latest",
		"A b"}, ImagePullJobTemplate: job.Spec.ImagePullJobTemplate}}
	if err := CheckList(list, nil); mistakes(err) != 5 {
		t.Errorf("a bad list: got %v, want 5 errors", err)
	}
	more := list.DeepCopy()
	more.Spec.Images = append(more.Spec.Images, "redis")
	if err := CheckList(more, list); err != nil {
		t.Errorf("only an image more: %v", err)
	}
}

// IMG-059, IMG-092, IMG-093: a deadline in many years is none that has passed.
func TestDeadlinesFarAway(t *testing.T) {
	for _, seconds := range []int64{9999999999, 99999999999, math.MaxInt64} {
		node := imagepulltest.Tagged("n", imagepulltest.Result(appsv1beta1.ImagePhasePulling, 2))
		if p := PlanJob(JobSnapshot{Job: imagepulltest.Job(until(seconds)), Nodes: []*appsv1beta1.NodeImage{node},
			Now: imagepulltest.Noon.Add(time.Minute)}); p.Status != nil && p.Status.CompletionTime != nil {
			t.Errorf("IMG-093 %d: %s", seconds, p.Status.Message)
		}
		node.Spec.Images["app"].Tags[0].PullPolicy.ActiveDeadlineSeconds = &seconds
		if p := PlanNode(nodeSnapshot(node, time.Hour)); len(p.GaveUp) != 0 {
			t.Errorf("IMG-059 %d: %+v", seconds, p.GaveUp)
		}
		waits := imagepulltest.Job(until(seconds), func(j *appsv1beta1.ImagePullJob) {
			j.Spec.PodSelector = &appsv1beta1.ImagePullJobPodSelector{}
			j.OwnerReferences = []metav1.OwnerReference{{Kind: "CloneSet", Controller: new(true)}}
		})
		if p := PlanJob(JobSnapshot{Job: waits, Now: imagepulltest.Noon.Add(time.Minute)}); p.Status != nil && p.Status.CompletionTime != nil {
			t.Errorf("IMG-092 %d: %s", seconds, p.Status.Message)
		}
	}
}
