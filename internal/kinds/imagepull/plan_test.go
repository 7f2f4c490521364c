package imagepull

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

func until(seconds int64) func(*appsv1beta1.ImagePullJob) {
	return func(j *appsv1beta1.ImagePullJob) { j.Spec.CompletionPolicy.ActiveDeadlineSeconds = &seconds }
}

func ended(j *appsv1beta1.ImagePullJob) { j.Status.CompletionTime = imagepulltest.At(0) }

func never(j *appsv1beta1.ImagePullJob) { j.Spec.CompletionPolicy.Type = "Never" }

func nodeSnapshot(image *appsv1beta1.NodeImage, after time.Duration) NodeSnapshot {
	return NodeSnapshot{Name: "n", NodeImage: image, Now: imagepulltest.Noon.Add(after), Delay: 30 * time.Second,
		Random: func() float64 { return 0.5 },
		Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True",
				LastTransitionTime: *imagepulltest.At(0)}}}},
		JobUID:      func(_, name string, _ types.UID) (types.UID, bool) { return types.UID("uid-" + name), name != "unread" },
		Busy:        func(_, _ string) bool { return false },
		SecretUsers: func(_, _ string, _ map[string]bool) ([]string, bool, bool) { return []string{"shop/warm"}, true, true }}
}

func TestPlanNode(t *testing.T) {
	tags := func(n *appsv1beta1.NodeImage, change func(*appsv1beta1.ImageTagSpec)) {
		image := n.Spec.Images["app"]
		change(&image.Tags[0])
	}
	secrets := func(n *appsv1beta1.NodeImage) {
		image := n.Spec.Images["app"]
		image.PullSecrets = []appsv1beta1.ReferenceObject{{Namespace: "c", Name: "old"}, {Namespace: "c", Name: "new", Mode: "batch"}}
		n.Spec.Images["app"] = image
	}
	answered := imagepulltest.Result(appsv1beta1.ImagePhasePulling, 2)
	ended := func(d time.Duration) func(*appsv1beta1.NodeImage) {
		return func(n *appsv1beta1.NodeImage) {
			n.Status.ImageStatuses["app"].Tags[0].CompletionTime = imagepulltest.At(d)
		}
	}
	cases := map[string]struct {
		image  *appsv1beta1.NodeImage
		after  time.Duration
		change func(*NodeSnapshot)
		want   string
		next   time.Duration
	}{
		"IMG-051 a node that is ready":         {nil, 30 * time.Second, nil, "create", 0},
		"IMG-051 a node that was ready before": {nil, 10 * time.Second, nil, "", 20 * time.Second},
		"IMG-051 a node that is not ready": {nil, time.Hour, func(s *NodeSnapshot) { s.Node.Status.Conditions[0].Status = "False" }, "",
			0},
		"IMG-050 a virtual node": {nil, time.Hour,
			func(s *NodeSnapshot) { s.Node.Labels = map[string]string{"type": "virtual-kubelet"} }, "", 0},
		"IMG-052 no node": {imagepulltest.Tagged("n"), 0, func(s *NodeSnapshot) { s.Node = nil }, "delete", 0},
		"IMG-052 a node being deleted": {imagepulltest.Tagged("n"), 0, func(s *NodeSnapshot) { s.Node.DeletionTimestamp = imagepulltest.At(0) },
			"delete", 0},
		"IMG-052 a test's NodeImage": {imagepulltest.Tagged("n", answered,
			func(n *appsv1beta1.NodeImage) { n.Labels = map[string]string{pub.FakeNodeImage: ""} }), 0,
			func(s *NodeSnapshot) { s.Node = nil }, "", 0},
		"IMG-053 labels": {imagepulltest.Tagged("n", answered), 0, func(s *NodeSnapshot) { s.Node.Labels = map[string]string{"a": "b"} },
			"labels map[a:b]", 0},
		"nothing to do": {imagepulltest.Tagged("n", answered), 0, nil, "", 0},
		"IMG-054 a no createdAt": {imagepulltest.Tagged("n", func(n *appsv1beta1.NodeImage) {
			tags(n,
				func(t *appsv1beta1.ImageTagSpec) { t.CreatedAt = nil })
		}), 0, nil, "app gone", 0},
		"IMG-054 b, c the job is gone, IMG-056, IMG-217": {imagepulltest.Tagged("n", answered), 0, func(s *NodeSnapshot) {
			s.JobUID = func(_, _ string,
				_ types.UID) (types.UID, bool) {
				return "", true
			}
		}, "app gone", 0},
		"IMG-054 b another job of that name": {imagepulltest.Tagged("n", answered), 0, func(s *NodeSnapshot) {
			s.JobUID = func(_, _ string, _ types.UID) (types.UID, bool) { return "other", true }
		}, "app gone", 0},
		"IMG-054 b a job that cannot be read": {imagepulltest.Tagged("n", answered), 0, func(s *NodeSnapshot) {
			s.JobUID = func(_, _ string, _ types.UID) (types.UID, bool) { return "", false }
		}, "", 0},
		"IMG-054 b another kind of owner": {imagepulltest.Tagged("n", answered, func(n *appsv1beta1.NodeImage) {
			tags(n, func(t *appsv1beta1.ImageTagSpec) { t.OwnerReferences[0].Kind, t.OwnerReferences[0].UID = "Other", "x" })
		}), 0, nil, "", 0},
		"IMG-054 b one of two jobs is gone": {imagepulltest.Tagged("n", answered, func(n *appsv1beta1.NodeImage) {
			tags(n, func(t *appsv1beta1.ImageTagSpec) {
				t.OwnerReferences = append(t.OwnerReferences, imagepulltest.Owner("cold"))
			})
		}), 0, func(s *NodeSnapshot) {
			s.JobUID = func(_, name string, _ types.UID) (types.UID, bool) {
				return map[string]types.UID{"cold": "uid-cold"}[name], true
			}
		}, "app: 1 of cold", 0},
		"IMG-055 a user's tag": {imagepulltest.Tagged("n", answered, func(n *appsv1beta1.NodeImage) {
			tags(n,
				func(t *appsv1beta1.ImageTagSpec) { t.OwnerReferences = nil })
		}), 0, nil, "", 0},
		"IMG-054 d the TTL runs": {imagepulltest.Tagged("n", imagepulltest.Result("Succeeded", 2)), 50 * time.Second, nil, "",
			10 * time.Second},
		"IMG-062 not too soon": {imagepulltest.Tagged("n", imagepulltest.Result("Succeeded", 2)), 59 * time.Second, nil, "",
			4 * time.Second},
		"IMG-054 d the TTL is over": {imagepulltest.Tagged("n", imagepulltest.Result("Succeeded", 2)), time.Minute, nil, "app gone", 0},
		"IMG-054 d the node's clock is behind": {imagepulltest.Tagged("n", imagepulltest.Result("Succeeded", 2), ended(-time.Hour)),
			10 * time.Second, nil, "",
			50 * time.Second},
		"IMG-054 d and then it is over": {imagepulltest.Tagged("n", imagepulltest.Result("Succeeded", 2), ended(-time.Hour)), time.Minute, nil,
			"app gone",
			0},
		"a job that still counts the tag keeps it": {imagepulltest.Tagged("n", imagepulltest.Result("Succeeded", 2)), time.Minute,
			func(s *NodeSnapshot) { s.Busy = func(_, _ string) bool { return true } }, "", time.Minute},
		"IMG-054 d another version": {imagepulltest.Tagged("n", imagepulltest.Result("Succeeded", 1)), time.Minute, nil, "", 9 * time.Minute},
		"IMG-057, IMG-211 secrets that are gone": {imagepulltest.Tagged("n", answered, secrets), 0, func(s *NodeSnapshot) {
			s.SecretUsers = func(_, _ string, _ map[string]bool) ([]string, bool, bool) { return nil, false, true }
		}, "app: 1 of warm", 0},
		"IMG-057 a copy that others use": {imagepulltest.Tagged("n", answered, secrets), 0, func(s *NodeSnapshot) {
			s.SecretUsers = func(_, _ string, _ map[string]bool) ([]string, bool, bool) { return []string{"shop/x"}, true, true }
		}, "app: 1 of warm old", 0},
		"IMG-057 secrets that cannot be read": {imagepulltest.Tagged("n", answered, secrets), 0, func(s *NodeSnapshot) {
			s.SecretUsers = func(_, _ string, _ map[string]bool) ([]string, bool, bool) { return nil, false, false }
		}, "", 0},
		"IMG-058 the node does not answer": {imagepulltest.Tagged("n"), 10 * time.Minute, nil,
			"failed app:1 node has not responded for a long time, 1/0/0/0/1", 0},
		"IMG-058 no answer to this version": {imagepulltest.Tagged("n", imagepulltest.Result("Failed", 1)), 10 * time.Minute, nil,
			"failed app:1 node has not responded for a long time, 1/0/0/0/1", 0},
		"IMG-058, IMG-132, IMG-215 waiting is an answer": {imagepulltest.Tagged("n", imagepulltest.Result("Waiting", 2)), time.Hour, nil, "", 0},
		"IMG-059, IMG-061 the deadline": {imagepulltest.Tagged("n", answered, func(n *appsv1beta1.NodeImage) {
			tags(n, func(t *appsv1beta1.ImageTagSpec) { t.PullPolicy.ActiveDeadlineSeconds = new(int64(60)) })
			n.Status.ImageStatuses["stale"] = appsv1beta1.ImageStatus{Tags: []appsv1beta1.ImageTagStatus{{Tag: "9", Phase: "Failed"}}}
			n.Spec.Images["b"] = appsv1beta1.ImageSpec{Tags: []appsv1beta1.ImageTagSpec{{Tag: "1", CreatedAt: imagepulltest.At(0)}}}
			n.Status.ImageStatuses["b"] = appsv1beta1.ImageStatus{Tags: []appsv1beta1.ImageTagStatus{{Tag: "1", Phase: "Waiting"}}}
		}), 11 * time.Minute, nil, "failed app:1 pulling exceeds the activeDeadlineSeconds, 2/1/0/0/1", 0},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			s := nodeSnapshot(test.image, test.after)
			if test.change != nil {
				test.change(&s)
			}
			before := test.image.DeepCopy()
			plan := PlanNode(s)
			got := shownNode(plan)
			if got != test.want {
				t.Errorf("shown node: got %q, want %q", got, test.want)
			}
			if plan.After != test.next {
				t.Errorf("time to the next pass: got %v, want %v", plan.After, test.next)
			}
			if plan.Why == "" {
				t.Error("why: got nothing, want some text")
			}
			if diff := cmp.Diff(before, test.image); diff != "" {
				t.Errorf("the input was modified:\n%s", diff)
			}
		})
	}
}

func shownNode(p *NodePlan) string {
	var parts []string
	if p.Create {
		parts = append(parts, "create")
	}
	if p.Delete {
		parts = append(parts, "delete")
	}
	if p.Relabel {
		parts = append(parts, fmt.Sprint("labels ", p.Labels))
	}
	for name, image := range p.Images {
		if image == nil {
			parts = append(parts, name+" gone")
			continue
		}
		text := name + ":"
		for _, tag := range image.Tags {
			text += " " + tag.Tag + " of"
			for _, ref := range tag.OwnerReferences {
				text += " " + ref.Name
			}
		}
		for _, secret := range image.PullSecrets {
			text += " " + secret.Name
		}
		parts = append(parts, text)
	}
	for _, g := range p.GaveUp {
		s := p.Status
		parts = append(parts, fmt.Sprintf("failed %s:%s %s, %d/%d/%d/%d/%d", g.Image, g.Tag, g.Message, s.Desired, s.Waiting, s.Pulling,
			s.Succeeded, s.Failed))
		if _, stale := s.ImageStatuses["stale"]; stale || s.ImageStatuses["app"].Tags[0].Version != 2 {
			parts = append(parts, "wrong entries")
		}
	}
	return strings.Join(parts, "; ")
}

func TestPlanJob(t *testing.T) {
	good, bad, pulling := imagepulltest.Result("Succeeded", 2), imagepulltest.Result("Failed", 2), imagepulltest.Result("Pulling", 2)
	full := imagepulltest.Blank("full")
	full.Spec.Images = map[string]appsv1beta1.ImageSpec{}
	for i := range maxImages {
		full.Spec.Images[fmt.Sprint("i", i)] = appsv1beta1.ImageSpec{}
	}
	cases := map[string]struct {
		job   *appsv1beta1.ImagePullJob
		nodes []*appsv1beta1.NodeImage
		after time.Duration
		want  string
	}{
		"IMG-080 deleted": {imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.DeletionTimestamp = imagepulltest.At(0) }), nil, 0,
			"finish"},
		"IMG-080 completed": {imagepulltest.Job(ended), nil, 0, "finish"},
		"IMG-081 the TTL runs": {imagepulltest.Job(ended, func(j *appsv1beta1.ImagePullJob) {
			j.Finalizers, j.Spec.CompletionPolicy.TTLSecondsAfterFinished = nil, new(int32(60))
		}), nil, 20 * time.Second, "after 40s"},
		"IMG-081 the TTL is over": {imagepulltest.Job(ended, func(j *appsv1beta1.ImagePullJob) {
			j.Finalizers, j.Spec.CompletionPolicy.TTLSecondsAfterFinished = nil, new(int32(60))
		}), nil, time.Minute, "delete"},
		"IMG-082 no finalizer yet": {imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Finalizers = nil }),
			[]*appsv1beta1.NodeImage{imagepulltest.Blank("a")}, 0, "finalizer; assign a; 1=0+0+0 job is running, progress 0.0%"},
		"IMG-073, IMG-085 one at a time, in the given order": {imagepulltest.Job(),
			[]*appsv1beta1.NodeImage{imagepulltest.Blank("z"), imagepulltest.Blank("a")}, 0,
			"assign z; 2=0+0+0 job is running, progress 0.0%"},
		"IMG-083, IMG-084, IMG-212 slots in use": {imagepulltest.Job(imagepulltest.Parallelism(2)),
			[]*appsv1beta1.NodeImage{imagepulltest.Tagged("a", pulling),
				imagepulltest.Tagged("b", good), imagepulltest.Tagged("c", bad), imagepulltest.Blank("d"), imagepulltest.Blank("e")}, 0,
			"assign d; 5=1+1+1 [c] job is running, progress 40.0%; after 1m0s"},
		"IMG-083 another version is active": {imagepulltest.Job(),
			[]*appsv1beta1.NodeImage{imagepulltest.Tagged("a", imagepulltest.Result("Succeeded", 1)),
				imagepulltest.Blank("b")}, 0, "2=1+0+0 job is running, progress 0.0%; after 1m0s"},
		"IMG-098 a silent node gives its slot back": {imagepulltest.Job(),
			[]*appsv1beta1.NodeImage{imagepulltest.Tagged("a"), imagepulltest.Blank("b")}, time.Minute,
			"assign b; 2=1+0+0 job is running, progress 0.0%"},
		"IMG-017 paused": {imagepulltest.Job(imagepulltest.Parallelism(0)), []*appsv1beta1.NodeImage{imagepulltest.Blank("b")}, 0,
			"1=0+0+0 job is running, progress 0.0%; paused, parallelism is 0"},
		"IMG-085 never negative": {imagepulltest.Job(imagepulltest.Parallelism(1)), []*appsv1beta1.NodeImage{imagepulltest.Tagged("a", pulling),
			imagepulltest.Tagged("b", pulling), imagepulltest.Blank("c")}, 0, "3=2+0+0 job is running, progress 0.0%; after 1m0s"},
		"IMG-092, IMG-094 completed": {imagepulltest.Job(),
			[]*appsv1beta1.NodeImage{imagepulltest.Tagged("a", good), imagepulltest.Tagged("b", bad)}, 0,
			"2=0+1+1 [b] job has completed"},
		"IMG-092 no nodes": {imagepulltest.Job(), nil, 0,
			"0=0+0+0 job has completed: nothing was pulled, because there are no nodes"},
		"IMG-092 pods of a workload are waited for": {imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
			j.Spec.PodSelector, j.OwnerReferences = &appsv1beta1.ImagePullJobPodSelector{},
				[]metav1.OwnerReference{{Kind: "CloneSet", Controller: new(true)}}
		}), nil, 10 * time.Second, "0=0+0+0 job is running, no progress: no pod that spec.podSelector matches is on a node; after 50s"},
		"IMG-016, IMG-094 never": {imagepulltest.Job(never), []*appsv1beta1.NodeImage{imagepulltest.Tagged("a", good)}, 0,
			"1=0+1+0 job is running, progress 100.0%"},
		"IMG-094 never, no nodes": {imagepulltest.Job(never), nil, 0, "0=0+0+0 job is running, no progress: there are no nodes"},
		"IMG-091 never pulls again": {imagepulltest.Job(never), []*appsv1beta1.NodeImage{imagepulltest.Blank("a")}, 25 * time.Hour,
			"assign a; 1=0+0+0 job is running, progress 0.0%"},
		"IMG-093 the deadline runs": {imagepulltest.Job(until(60)), []*appsv1beta1.NodeImage{imagepulltest.Tagged("a", pulling)},
			10 * time.Second,
			"1=1+0+0 job is running, progress 0.0%; after 50s"},
		"IMG-093 the deadline is over": {imagepulltest.Job(until(60)),
			[]*appsv1beta1.NodeImage{imagepulltest.Tagged("c", pulling), imagepulltest.Tagged("b", good), imagepulltest.Blank("a"),
				imagepulltest.Tagged("d", bad)}, time.Minute, "4=0+1+3 [a c d] job exceeds activeDeadlineSeconds 60"},
		"IMG-097 no room": {imagepulltest.Job(), []*appsv1beta1.NodeImage{full, imagepulltest.Blank("b")}, 0,
			"assign b; 2=0+0+1 [full] job is running, progress 50.0%; 1 node has no room for another image (at most 1024), such as full"},
		"IMG-074 a node that came later": {imagepulltest.Job(),
			[]*appsv1beta1.NodeImage{imagepulltest.Tagged("a", good), imagepulltest.Blank("b")}, 0,
			"assign b; 2=0+1+0 job is running, progress 50.0%"},
		"IMG-084 the start is remembered": {imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) { j.Status.StartTime = nil }),
			[]*appsv1beta1.NodeImage{imagepulltest.Tagged("a", pulling)}, 0, "1=1+0+0 job is running, progress 0.0%"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			s := JobSnapshot{Job: test.job, Nodes: test.nodes, Now: imagepulltest.Noon.Add(test.after)}
			plan := PlanJob(s)
			if got := shownJob(plan); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if plan.Status != nil && plan.Status.CompletionTime == nil { // nothing is written at rest
				test.job.Status = *plan.Status
				if again := PlanJob(s); again.Status != nil {
					t.Errorf("the status is written again: %+v", again.Status)
				}
			}
		})
	}
}

func shownJob(p *JobPlan) string {
	var parts []string
	for text, is := range map[string]bool{"finish": p.Finish, "finalizer": p.AddFinalizer, "delete": p.Delete} {
		if is {
			parts = append(parts, text)
		}
	}
	for text, list := range map[string][]string{"assign ": p.Assign} {
		if len(list) > 0 {
			parts = append(parts, text+strings.Join(list, " "))
		}
	}
	if s := p.Status; s != nil {
		failed := ""
		if len(s.FailedNodes) > 0 {
			failed = fmt.Sprint(s.FailedNodes, " ")
		}
		parts = append(parts, fmt.Sprintf("%d=%d+%d+%d %s%s", s.Desired, s.Active, s.Succeeded, s.Failed, failed, s.Message))
	}
	if p.After > 0 {
		parts = append(parts, "after "+p.After.String())
	}
	return strings.Join(parts, "; ")
}

// IMG-099: thousands of failed nodes do not make the object too large.
func TestFailedNodesAreBounded(t *testing.T) {
	var nodes []*appsv1beta1.NodeImage
	for i := range 600 {
		nodes = append(nodes, imagepulltest.Tagged(fmt.Sprintf("n%03d", i), imagepulltest.Result("Failed", 2)))
	}
	s := PlanJob(JobSnapshot{Job: imagepulltest.Job(), Nodes: nodes, Now: imagepulltest.Noon}).Status
	if len(s.FailedNodes) != 500 {
		t.Errorf("number of failed nodes: got %d, want 500", len(s.FailedNodes))
	}
	if s.Failed != 600 {
		t.Errorf("failed: got %d, want 600", s.Failed)
	}
	if !strings.Contains(s.Message, "600 nodes failed, the first 500 are listed") {
		t.Errorf("message: got %q, want it to contain %q", s.Message, "600 nodes failed, the first 500 are listed")
	}
}

// IMG-089: secrets come to assigned nodes whatever the parallelism. IMG-095: tags that the job does not ask
// for any more are left.
func TestSupplyAndDrop(t *testing.T) {
	secret := appsv1beta1.ReferenceObject{Namespace: "c", Name: "s", Mode: "batch"}
	old := imagepulltest.Tagged("old", func(n *appsv1beta1.NodeImage) {
		n.Spec.Images["was"] = n.Spec.Images["app"]
		delete(n.Spec.Images, "app")
	})
	plan := PlanJob(JobSnapshot{Job: imagepulltest.Job(imagepulltest.Parallelism(0)), Now: imagepulltest.Noon,
		Secrets: []appsv1beta1.ReferenceObject{secret},
		Nodes:   []*appsv1beta1.NodeImage{imagepulltest.Tagged("a"), old}, Owned: []*appsv1beta1.NodeImage{imagepulltest.Tagged("a"), old}})
	if diff := cmp.Diff([][]string{{"a"}, {"old"}}, [][]string{plan.Supply, plan.Drop}); diff != "" {
		t.Errorf("nodes that are supplied and dropped (-want +got):\n%s", diff)
	}
	a := Assigner{Job: imagepulltest.Job(), Secrets: []appsv1beta1.ReferenceObject{secret}, Now: imagepulltest.Noon,
		Random: func() float64 { return 0 }}
	got, err := a.Assign(imagepulltest.Tagged("a"))
	if err != nil {
		t.Errorf("unexpected error: %v\n%+v", err, got["app"])
	} else if len(got["app"].PullSecrets) != 1 {
		t.Errorf("number of pull secrets: got %d, want 1\n%+v\n%v", len(got["app"].PullSecrets), got["app"], err)
	} else if got["app"].Tags[0].Version != 2 {
		t.Errorf("version of the first tag: got %d, want 2\n%+v\n%v", got["app"].Tags[0].Version, got["app"], err)
	}
	dropped := a.Drop(old)
	if len(dropped) != 1 {
		t.Errorf("number dropped: got %d, want 1\n%+v", len(dropped), dropped)
	}
	if dropped["was"] != nil {
		t.Errorf("dropped was: got %+v, want nil\n%+v", dropped["was"], dropped)
	}
}

// IMG-086 to IMG-088, IMG-090, IMG-097.
func TestAssign(t *testing.T) {
	assign := func(job *appsv1beta1.ImagePullJob, node *appsv1beta1.NodeImage, random float64) *appsv1beta1.ImageTagSpec {
		t.Helper()
		images, err := Assigner{Job: job, ExtraTTL: 300 * time.Second, Now: imagepulltest.Noon.Add(time.Hour),
			Random: func() float64 { return random }}.Assign(node)
		if err != nil {
			t.Fatal(err)
		}
		return &images["app"].Tags[0]
	}
	first := assign(imagepulltest.Job(), imagepulltest.Blank("a"), 0)
	if first.Version != 0 || len(first.OwnerReferences) != 1 || cmp.Diff(imagepulltest.Owner("warm"), first.OwnerReferences[0]) != "" ||
		!first.CreatedAt.Equal(imagepulltest.At(time.Hour)) {
		t.Errorf("IMG-086, IMG-087: got %+v, want version 0 of job warm, made after an hour", first)
	}
	if p := first.PullPolicy; *p.TTLSecondsAfterFinished != 600*3+300 {
		t.Errorf("IMG-090: seconds to keep it: got %d, want %d\n%d\n%d", *p.TTLSecondsAfterFinished, 600*3+300, *p.TimeoutSeconds,
			*p.BackoffLimit)
	} else if *p.TimeoutSeconds != 600 {
		t.Errorf("IMG-090: timeout in seconds: got %d, want 600\n%d\n%d", *p.TimeoutSeconds, *p.TTLSecondsAfterFinished, *p.BackoffLimit)
	} else if *p.BackoffLimit != 3 {
		t.Errorf("IMG-090: backoff limit: got %d, want 3\n%d\n%d", *p.BackoffLimit, *p.TTLSecondsAfterFinished, *p.TimeoutSeconds)
	} else if p.ActiveDeadlineSeconds != nil {
		t.Errorf("IMG-090: deadline in seconds: got a value, want nil\n%d\n%d\n%d", *p.TTLSecondsAfterFinished, *p.TimeoutSeconds,
			*p.BackoffLimit)
	}
	if again := assign(imagepulltest.Job(), imagepulltest.Tagged("a", imagepulltest.Result("Failed", 7),
		func(n *appsv1beta1.NodeImage) { n.Spec.Images = nil }),
		0); again.Version != 8 {
		t.Errorf("IMG-086, IMG-144 a tag that was here before: version %d", again.Version)
	}
	second := assign(imagepulltest.Job(until(30), func(j *appsv1beta1.ImagePullJob) { j.UID = "uid-2" }),
		imagepulltest.Tagged("a", func(n *appsv1beta1.NodeImage) {
			policy := n.Spec.Images["app"].Tags[0].PullPolicy
			policy.TTLSecondsAfterFinished, policy.ActiveDeadlineSeconds = new(int32(9999)), new(int64(20))
		}), 0.5)
	if second.Version != 3 {
		t.Errorf("IMG-086, IMG-088: version the second time: got %d, want 3\n%+v", second.Version, second)
	} else if len(second.OwnerReferences) != 2 {
		t.Errorf("IMG-086, IMG-088: number of owners the second time: got %d, want 2\n%+v", len(second.OwnerReferences), second)
	} else if *second.PullPolicy.TTLSecondsAfterFinished != 9999 {
		t.Errorf("IMG-086, IMG-088: seconds to keep it of the pull policy the second time: got %d, want 9999\n%+v",
			*second.PullPolicy.TTLSecondsAfterFinished, second)
	} else if *second.PullPolicy.ActiveDeadlineSeconds != 30 {
		t.Errorf("IMG-086, IMG-088: deadline in seconds of the pull policy the second time: got %d, want 30\n%+v",
			*second.PullPolicy.ActiveDeadlineSeconds, second)
	}
	if p := assign(imagepulltest.Job(until(30)), imagepulltest.Blank("a"), 0.5).PullPolicy; *p.TTLSecondsAfterFinished != 30+300+150 {
		t.Errorf("IMG-090: %d", *p.TTLSecondsAfterFinished)
	}
	forever := assign(imagepulltest.Job(never, func(j *appsv1beta1.ImagePullJob) {
		j.Spec.PullPolicy = &appsv1beta1.PullPolicy{TimeoutSeconds: new(int32(7200))}
	}), imagepulltest.Blank("a"), 0.5).PullPolicy
	if *forever.TTLSecondsAfterFinished != 86400 {
		t.Errorf("IMG-090, IMG-215: seconds to keep it: got %d, want 86400\n%d", *forever.TTLSecondsAfterFinished,
			*forever.ActiveDeadlineSeconds)
	} else if *forever.ActiveDeadlineSeconds != 7200 {
		t.Errorf("IMG-090, IMG-215: deadline in seconds: got %d, want 7200\n%d", *forever.ActiveDeadlineSeconds,
			*forever.TTLSecondsAfterFinished)
	}
	if images, err := (Assigner{Job: imagepulltest.Job(),
		Random: func() float64 { return 0 }}).Assign(imagepulltest.Tagged("a")); images != nil {
		t.Errorf("assigned already: images: got a value, want nil\n%v", err)
	} else if err != nil {
		t.Errorf("assigned already: unexpected error: %v\n%v", err, images)
	}
	full := imagepulltest.Blank("a")
	full.Spec.Images = map[string]appsv1beta1.ImageSpec{}
	for i := range maxImages {
		full.Spec.Images[fmt.Sprint(i)] = appsv1beta1.ImageSpec{}
	}
	if _, err := (Assigner{Job: imagepulltest.Job()}).Assign(full); !errors.Is(err, ErrFull) {
		t.Errorf("IMG-097: %v", err)
	}
}

// IMG-003, IMG-150 to IMG-158, IMG-223: a list makes a job for each image, counts them in its own order, and
// ends with them.
func TestPlanList(t *testing.T) {
	list := &appsv1beta1.ImageListPullJob{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "all", UID: "l"},
		Spec: appsv1beta1.ImageListPullJobSpec{Images: []string{"b", "a", "c"}, ImagePullJobTemplate: appsv1beta1.ImagePullJobTemplate{
			CompletionPolicy: appsv1beta1.CompletionPolicy{TTLSecondsAfterFinished: new(int32(60)),
				ActiveDeadlineSeconds: new(int64(900))}}}}
	first := PlanList(list, nil, imagepulltest.Noon)
	if len(first.Create) != 3 {
		t.Fatalf("number created the first time: got %d, want 3\n%+v", len(first.Create), first)
	}
	if !first.Relabel {
		t.Fatalf("relabelled the first time: got false, want true\n%+v", first)
	}
	if first.Status.Desired != 3 {
		t.Fatalf("desired the first time: got %d, want 3\n%+v", first.Status.Desired, first)
	}
	if first.Status.StartTime == nil {
		t.Fatalf("time of the start the first time: got nil, want a value\n%+v", first)
	}
	var children []*appsv1beta1.ImagePullJob
	for i, child := range first.Create {
		if child.Spec.CompletionPolicy.TTLSecondsAfterFinished != nil {
			t.Errorf("IMG-150, IMG-157, IMG-158, IMG-228: seconds to keep it of the completion policy of the child: got a value, want nil\n%+v",
				child)
		} else if *child.Spec.CompletionPolicy.ActiveDeadlineSeconds != 900 {
			t.Errorf("IMG-150, IMG-157, IMG-158, IMG-228: deadline in seconds of the completion policy of the child: got %d, want 900\n%+v",
				*child.Spec.CompletionPolicy.ActiveDeadlineSeconds, child)
		} else if child.GenerateName != "all-" {
			t.Errorf("IMG-150, IMG-157, IMG-158, IMG-228: generated name of the child: got %q, want %q\n%+v", child.GenerateName, "all-", child)
		} else if child.Labels[pub.ControllerRevisionHash] != first.Hash {
			t.Errorf("IMG-150, IMG-157, IMG-158, IMG-228: label controller revision hash of the child: got %q, want %q\n%+v",
				child.Labels[pub.ControllerRevisionHash], first.Hash, child)
		} else if got := metav1.GetControllerOf(child).UID; got != "l" {
			t.Errorf("IMG-150, IMG-157, IMG-158, IMG-228: UID of the owner: got %q, want %q\n%+v", got, "l", child)
		}
		child.Name, child.CreationTimestamp = fmt.Sprint("all-", i), *imagepulltest.At(0)
		child.Status = appsv1beta1.ImagePullJobStatus{StartTime: imagepulltest.At(0), Desired: 2, Succeeded: 2}
		children = append(children, child)
	}
	children[0].Status = appsv1beta1.ImagePullJobStatus{StartTime: imagepulltest.At(0), Desired: 2, Succeeded: 1, Failed: 1}
	children[1].Status = appsv1beta1.ImagePullJobStatus{StartTime: imagepulltest.At(0), Desired: 2, Failed: 1, Active: 1}
	list.Labels = map[string]string{pub.ControllerRevisionHash: first.Hash}
	list.Status = *first.Status
	plan := PlanList(list, []*appsv1beta1.ImagePullJob{children[2], children[0], children[1]}, imagepulltest.Noon)
	want := &appsv1beta1.ImageListPullJobStatus{StartTime: list.Status.StartTime, Desired: 3, Active: 1, Completed: 2, Succeeded: 1,
		FailedImageStatuses: []*appsv1beta1.FailedImageStatus{
			{ImagePullJob: "all-0", Name: "b", Message: "1 of 2 nodes failed, see ImagePullJob all-0"}, {ImagePullJob: "all-1", Name: "a",
				Message: "1 of 2 nodes failed, see ImagePullJob all-1"}}}
	if diff := cmp.Diff(want, plan.Status); diff != "" {
		t.Errorf("IMG-154, IMG-229: status (-want +got):\n%s\n%+v", diff, plan)
	}
	if len(plan.Create)+len(plan.Delete) != 0 {
		t.Errorf("IMG-154, IMG-229: number of created and deleted: got %d, want 0\n%+v", len(plan.Create)+len(plan.Delete), plan)
	}
	if plan.Relabel {
		t.Errorf("IMG-154, IMG-229: relabelled: got true, want false\n%+v", plan)
	}
	list.Status = *plan.Status
	if again := PlanList(list, children, imagepulltest.Noon); again.Status != nil {
		t.Errorf("IMG-229: written again: %+v", again.Status)
	}

	// IMG-151, IMG-161: hashes of other releases, and what admission filled in, do not matter; a changed
	// template does.
	children[0].Labels[pub.ControllerRevisionHash] = "other"
	if p := PlanList(list, children, imagepulltest.Noon); len(p.Delete) != 0 {
		t.Errorf("IMG-151: %+v", p.Delete)
	}
	children[0].Spec.ImagePullPolicy = appsv1beta1.PullAlways
	children[2].DeletionTimestamp = imagepulltest.At(0)
	twin := children[1].DeepCopy()
	twin.Name, twin.CreationTimestamp = "all-9", *imagepulltest.At(time.Second)
	stranger := children[1].DeepCopy()
	stranger.Spec.Image = "z"
	p := PlanList(list, append(children, twin, stranger), imagepulltest.Noon)
	var deleted, created []string
	for _, child := range p.Delete {
		deleted = append(deleted, child.Name+" "+child.Spec.Image)
	}
	for _, child := range p.Create {
		created = append(created, child.Spec.Image)
	}
	if diff := cmp.Diff([][]string{{"all-0 b", "all-1 z", "all-9 a"}, {"b", "c"}}, [][]string{deleted, created}); diff != "" {
		t.Errorf("IMG-152, IMG-153: %s", diff)
	}

	children[0].Spec.ImagePullPolicy, children[2].DeletionTimestamp = appsv1beta1.PullIfNotPresent, nil
	children[1].Status = appsv1beta1.ImagePullJobStatus{StartTime: imagepulltest.At(0), Desired: 2, Succeeded: 2}
	if p := PlanList(list, children, imagepulltest.Noon); p.Status.CompletionTime == nil {
		t.Errorf("IMG-155: time of completion: got nil, want a value\n%+v", p.Status)
	} else if p.Status.Completed != 3 {
		t.Errorf("IMG-155: completed: got %d, want 3\n%+v", p.Status.Completed, p.Status)
	}
	list.Status.CompletionTime = imagepulltest.At(0)
	if p := PlanList(list, nil, imagepulltest.Noon.Add(20*time.Second)); p.After != 40*time.Second {
		t.Errorf("IMG-156: time to the next pass: got %v, want %v\n%+v", p.After, 40*time.Second, p)
	} else if len(p.Create) != 0 {
		t.Errorf("IMG-156: number created: got %d, want 0\n%+v", len(p.Create), p)
	}
	if p := PlanList(list, nil, imagepulltest.Noon.Add(time.Minute)); !p.DeleteAll {
		t.Errorf("IMG-156: %+v", p)
	}
}
