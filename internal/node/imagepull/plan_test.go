package imagepull

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
)

var epoch = time.Date(2026, 1, 1, 10, 0, 0, 0, time.UTC)

func result(tag string, version int64, phase appsv1beta1.ImagePullPhase) appsv1beta1.ImageTagStatus {
	return appsv1beta1.ImageTagStatus{Tag: tag, Version: version, Phase: phase}
}

func nodeImage(version int64, tags []string, recorded ...appsv1beta1.ImageTagStatus) *appsv1beta1.NodeImage {
	n := &appsv1beta1.NodeImage{ObjectMeta: metav1.ObjectMeta{Name: "node", UID: "n"}}
	if len(tags) > 0 {
		spec := appsv1beta1.ImageSpec{}
		for _, tag := range tags {
			spec.Tags = append(spec.Tags, appsv1beta1.ImageTagSpec{Tag: tag, Version: version})
		}
		n.Spec.Images = map[string]appsv1beta1.ImageSpec{"img": spec}
	}
	if len(recorded) > 0 {
		n.Status.ImageStatuses = map[string]appsv1beta1.ImageStatus{"img": {Tags: recorded}}
	}
	return n
}

// IMG-131, IMG-132, IMG-142 to IMG-144, IMG-058, IMG-062: what begins, what is stopped, and what the status
// says.
func TestDecide(t *testing.T) {
	type want struct {
		Start, Stop, Drop string
		Tags              []appsv1beta1.ImageTagStatus
		Counts            string // desired, waiting, pulling, succeeded, failed
		Unfinished        bool
	}
	tasks := func(list ...appsv1beta1.ImageTagStatus) map[key]appsv1beta1.ImageTagStatus {
		all := map[key]appsv1beta1.ImageTagStatus{}
		for _, s := range list {
			all[key{"img", s.Tag}] = s
		}
		return all
	}
	one := []string{"1"}
	for name, test := range map[string]struct {
		object *appsv1beta1.NodeImage
		tasks  map[key]appsv1beta1.ImageTagStatus
		want   want
	}{
		"new tags wait, sorted": {object: nodeImage(0, []string{"b", "a"}),
			want: want{Start: "[{img b} {img a}]", Tags: []appsv1beta1.ImageTagStatus{result("a", 0, waiting), result("b", 0, waiting)},
				Counts: "2 2 0 0 0", Unfinished: true}},
		"a tag listed twice": {object: nodeImage(0, []string{"1", "1"}),
			want: want{Start: "[{img 1}]", Tags: []appsv1beta1.ImageTagStatus{result("1", 0, waiting)}, Counts: "1 1 0 0 0",
				Unfinished: true}},
		"under way": {object: nodeImage(0, one), tasks: tasks(result("1", 0, pulling)),
			want: want{Tags: []appsv1beta1.ImageTagStatus{result("1", 0, pulling)}, Counts: "1 0 1 0 0", Unfinished: true}},
		"ended and not recorded": {object: nodeImage(0, one, result("1", 0, pulling)), tasks: tasks(result("1", 0, succeeded)),
			want: want{Tags: []appsv1beta1.ImageTagStatus{result("1", 0, succeeded)}, Counts: "1 0 0 1 0"}},
		"recorded": {object: nodeImage(0, one, result("1", 0, succeeded)), tasks: tasks(result("1", 0, succeeded)),
			want: want{Drop: "[{img 1}]", Tags: []appsv1beta1.ImageTagStatus{result("1", 0, succeeded)}, Counts: "1 0 0 1 0"}},
		"recorded, after a restart": {object: nodeImage(0, one, result("1", 0, failed)),
			want: want{Tags: []appsv1beta1.ImageTagStatus{result("1", 0, failed)}, Counts: "1 0 0 0 1"}},
		"unfinished, after a restart": {object: nodeImage(0, one, result("1", 0, pulling)),
			want: want{Start: "[{img 1}]", Tags: []appsv1beta1.ImageTagStatus{result("1", 0, waiting)}, Counts: "1 1 0 0 0",
				Unfinished: true}},
		"a new version": {object: nodeImage(1, one, result("1", 0, failed)),
			want: want{Start: "[{img 1}]", Tags: []appsv1beta1.ImageTagStatus{result("1", 1, waiting)}, Counts: "1 1 0 0 0",
				Unfinished: true}},
		"a new version while pulling": {object: nodeImage(1, one), tasks: tasks(result("1", 0, pulling)),
			want: want{Start: "[{img 1}]", Stop: "[{img 1}]", Tags: []appsv1beta1.ImageTagStatus{result("1", 1, waiting)},
				Counts: "1 1 0 0 0", Unfinished: true}},
		"given up by the manager": {object: nodeImage(0, one, result("1", 0, failed)), tasks: tasks(result("1", 0, pulling)),
			want: want{Stop: "[{img 1}]", Tags: []appsv1beta1.ImageTagStatus{result("1", 0, failed)}, Counts: "1 0 0 0 1"}},
		"tag removed": {object: nodeImage(0, nil, result("1", 0, succeeded)), tasks: tasks(result("1", 0, pulling)),
			want: want{Stop: "[{img 1}]", Counts: "0 0 0 0 0"}},
		"status of a tag not in the spec": {object: nodeImage(0, one, result("1", 0, succeeded), result("0", 0, failed)),
			want: want{Tags: []appsv1beta1.ImageTagStatus{result("1", 0, succeeded)}, Counts: "1 0 0 1 0"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlan(snapshot{object: test.object, tasks: test.tasks, now: epoch})
			text := func(keys []key) string {
				if len(keys) == 0 {
					return ""
				}
				return fmt.Sprint(keys)
			}
			got := want{Start: text(p.start), Stop: text(p.stop), Drop: text(p.drop), Tags: p.status.ImageStatuses["img"].Tags,
				Unfinished: p.unfinished,
				Counts:     fmt.Sprint(p.status.Desired, p.status.Waiting, p.status.Pulling, p.status.Succeeded, p.status.Failed)}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("the plan (-want +got):\n%s", diff)
			}
		})
	}
}

// IMG-063, IMG-062: once, when all tags of the first look have ended; later tags, new versions and removed
// ones do not count.
func TestFirstSync(t *testing.T) {
	first := map[key]int64{{"img", "1"}: 0, {"img", "2"}: 0}
	for name, test := range map[string]struct {
		object *appsv1beta1.NodeImage
		first  map[key]int64
		want   *appsv1beta1.SyncStatus
	}{
		"not all have ended": {object: nodeImage(0, []string{"1", "2"}, result("1", 0, succeeded)), first: first},
		"none failed": {object: nodeImage(0, []string{"1", "2", "3"}, result("1", 0, succeeded), result("2", 0, succeeded)),
			first: first,
			want:  &appsv1beta1.SyncStatus{SyncAt: metav1.NewTime(epoch), Status: "Succeeded", Message: "2 images are present"}},
		"one failed": {object: nodeImage(0, []string{"1", "2"}, result("1", 0, succeeded), result("2", 0, failed)), first: first,
			want: &appsv1beta1.SyncStatus{SyncAt: metav1.NewTime(epoch), Status: "Failed", Message: "1 of 2 images failed: img:2"}},
		"the other is gone": {object: nodeImage(0, []string{"1"}, result("1", 0, succeeded)), first: first,
			want: &appsv1beta1.SyncStatus{SyncAt: metav1.NewTime(epoch), Status: "Succeeded", Message: "1 image is present"}},
		"told before": {object: func() *appsv1beta1.NodeImage {
			n := nodeImage(0, nil)
			n.Status.FirstSyncStatus = &appsv1beta1.SyncStatus{Message: "then"}
			return n
		}(), want: &appsv1beta1.SyncStatus{Message: "then"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want,
				newPlan(snapshot{object: test.object, first: test.first, now: epoch}).status.FirstSyncStatus); diff != "" {
				t.Errorf("status of the first sync (-want +got):\n%s", diff)
			}
		})
	}
}

// IMG-013, IMG-134, IMG-210: tags are joined by a colon, digests by an at sign; names are compared in full
// form.
func TestTagsAreComparedInFullForm(t *testing.T) {
	const sum = "sha256:0123456789012345678901234567890123456789012345678901234567890123"
	if got := (key{"nginx", "1"}).reference(); got != "nginx:1" {
		t.Errorf("reference of a tag: got %s, want nginx:1", got)
	}
	if got := (key{"nginx", sum}).reference(); got != "nginx@"+sum {
		t.Errorf("reference of a digest: got %s, want nginx@%s", got, sum)
	}
	for a, b := range map[string]string{"nginx:1": "docker.io/library/nginx:1", "nginx@" + sum: "docker.io/library/nginx@" + sum,
		"r.io/a/b:2": "r.io/a/b:2"} {
		if full(a) != full(b) {
			t.Errorf("full names of %s and %s differ: %s, %s", a, b, full(a), full(b))
		}
		if full(a) == "" {
			t.Errorf("%s has no full name", a)
		}
	}
	if full("nginx:1") == full("nginx:2") {
		t.Errorf("nginx:1 and nginx:2 have the same full name, %s", full("nginx:1"))
	}
	if got := full("<none>:<none>"); got != "" {
		t.Errorf("full name of an image without name: got %s, want none", got)
	}
}
