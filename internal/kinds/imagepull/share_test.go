package imagepull

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/imagepull/imagepulltest"
)

// IMG-097 (part): what jobs of another namespace do with an image that both use takes nothing of the room of
// this one: neither their tags, nor their places among the owners of a tag, nor most of their secrets.
func TestNeighboursInAnImageTakeNoRoom(t *testing.T) {
	owner := func(namespace string, n int) corev1.ObjectReference {
		return corev1.ObjectReference{Namespace: namespace, Name: fmt.Sprintf("%s-%d", strings.Repeat("j", 50), n)}
	}
	many := func(image *appsv1beta1.ImageSpec) {
		for i := range 700 {
			image.Tags = append(image.Tags, appsv1beta1.ImageTagSpec{Tag: fmt.Sprint(i),
				OwnerReferences: []corev1.ObjectReference{owner("hostile", i)}})
		}
	}
	for name, tt := range map[string]struct {
		fill func(*appsv1beta1.ImageSpec)
	}{
		"tags": {many},
		"owners of the same tag": {func(image *appsv1beta1.ImageSpec) {
			for i := range 2200 {
				image.Tags[0].OwnerReferences = append(image.Tags[0].OwnerReferences, owner("hostile", i))
			}
		}},
		"secrets": {func(image *appsv1beta1.ImageSpec) {
			for i := range 2200 {
				image.Tags[0].OwnerReferences = append(image.Tags[0].OwnerReferences, owner("hostile", i))
				image.PullSecrets = append(image.PullSecrets,
					appsv1beta1.ReferenceObject{Namespace: "kruise-daemon-config", Name: strings.Repeat("s", 100)})
			}
		}},
	} {
		n, image := imagepulltest.Blank("n"), appsv1beta1.ImageSpec{Tags: []appsv1beta1.ImageTagSpec{{Tag: "own",
			OwnerReferences: []corev1.ObjectReference{owner("shop", 1)}}}}
		tt.fill(&image)
		n.Spec.Images = map[string]appsv1beta1.ImageSpec{"shared": image}
		size := sizeOf("shared", &image)
		if size <= maxBytesOfNamespace {
			t.Fatalf(`%s: size of the image: got %d, want more than %d`, name, size, maxBytesOfNamespace)
		}
		if size > maxBytes-1000 {
			t.Fatalf(`%s: size of the image: got %d, want at most %d`, name, size, maxBytes-1000)
		}
		if why := noRoom(n, imagepulltest.Job(), "app", "1", nil); why != "" {
			t.Errorf(`%s: want of room: got %q, want %q`, name, why, "")
		}
	}
}

// IMG-097 (part): references to the secrets of a job take room, before they are there.
func TestSecretsTakeRoom(t *testing.T) {
	var secrets []appsv1beta1.ReferenceObject
	for i := range 3000 {
		secrets = append(secrets, appsv1beta1.ReferenceObject{Namespace: "kruise-daemon-config",
			Name: fmt.Sprintf("%s-%d", strings.Repeat("s", 100), i)})
	}
	n := imagepulltest.Blank("n")
	if why := noRoom(n, imagepulltest.Job(), "app", "1", secrets); why != "at most 384 KiB of one namespace" {
		t.Errorf("3000 secrets: %q", why)
	}
	n.Spec.Images = map[string]appsv1beta1.ImageSpec{"app": {PullSecrets: secrets}}
	if why := noRoom(n, imagepulltest.Job(), "app", "1", secrets); why != "" {
		t.Errorf("3000 secrets that are there: %q", why)
	}
}

// IMG-097 (part): a job names 32 pull secrets at most. More make a manager read for hours what may not even
// exist.
func TestAJobNamesFewSecrets(t *testing.T) {
	for n, refused := range map[int]bool{pub.MaxPullSecrets: false, pub.MaxPullSecrets + 1: true} {
		job := imagepulltest.Job()
		for i := range n {
			job.Spec.PullSecrets = append(job.Spec.PullSecrets, fmt.Sprint("s", i))
		}
		if err := CheckJob(job, nil); (err != nil) != refused {
			t.Errorf("%d secrets: %v", n, err)
		}
	}
}

// IMG-097 (part): secrets that are made only when their job has its place on the node take no more room than
// there is.
func TestSecretsThatComeLaterTakeNoMoreRoom(t *testing.T) {
	job, n := imagepulltest.Job(), imagepulltest.Blank("n")
	image := appsv1beta1.ImageSpec{Tags: []appsv1beta1.ImageTagSpec{{Tag: "1", CreatedAt: imagepulltest.At(0),
		OwnerReferences: []corev1.ObjectReference{
			{APIVersion: appsv1beta1.GroupVersion.String(), Kind: JobKind, Namespace: job.Namespace, Name: job.Name, UID: job.UID}}}}}
	n.Spec.Images = map[string]appsv1beta1.ImageSpec{"app": image, strings.Repeat("x", (maxBytesOfNamespace-3000)/5): image}
	if ownedTag(n, "app", "1", job.UID) == nil {
		t.Fatal("the job has no place")
	}
	for count, supplied := range map[int]bool{1: true, 32: false} {
		s := JobSnapshot{Job: job, Nodes: []*appsv1beta1.NodeImage{n}, Now: imagepulltest.Noon}
		for i := range count {
			s.Secrets = append(s.Secrets, appsv1beta1.ReferenceObject{Namespace: "kruise-daemon-config",
				Name: fmt.Sprintf("%s-%d", strings.Repeat("s", 100), i)})
		}
		if plan := PlanJob(s); (len(plan.Supply) == 1) != supplied {
			t.Errorf("%d secrets: %v are supplied", count, plan.Supply)
		}
		_, err := Assigner{Job: job, Secrets: s.Secrets, Now: imagepulltest.Noon}.Assign(n)
		if (err == nil) != supplied {
			t.Errorf("%d secrets: %v", count, err)
		}
	}
}

// IMG-023, IMG-097: the jobs of one namespace leave room for those of others in each node, in number and in
// bytes, and who has no room is told why.
func TestOneNamespaceLeavesRoomForOthers(t *testing.T) {
	node := imagepulltest.Blank("n")
	fill := func(namespace, sandbox string, most int) (n int, note string) {
		for ; n < most; n++ {
			job := imagepulltest.Job(func(j *appsv1beta1.ImagePullJob) {
				j.Namespace, j.Name, j.UID = namespace, fmt.Sprintf("j%d", n), types.UID(fmt.Sprintf("%s-%d", namespace, n))
				j.Spec.Image = fmt.Sprintf("%s/app-%d:1", namespace, n)
				if sandbox != "" {
					j.Spec.SandboxConfig = &appsv1beta1.SandboxConfig{Annotations: map[string]string{"a": sandbox}}
				}
			})
			if plan := PlanJob(JobSnapshot{Job: job, Nodes: []*appsv1beta1.NodeImage{node}, Now: imagepulltest.Noon}); len(plan.Assign) == 0 {
				return n, plan.Status.Message
			}
			images, err := Assigner{Job: job, Now: imagepulltest.Noon, Random: func() float64 { return 0 }}.Assign(node)
			if err != nil {
				t.Fatal(err)
			}
			if node.Spec.Images == nil {
				node.Spec.Images = map[string]appsv1beta1.ImageSpec{}
			}
			for name, image := range images {
				node.Spec.Images[name] = *image
			}
		}
		return n, ""
	}
	n, note := fill("many", "", 2000)
	if n != 256 {
		t.Errorf(`jobs of many that fit: got %d, want 256`, n)
	}
	if !strings.Contains(note, "1 node has no room for another image (at most 256 of one namespace)") {
		t.Errorf("note: got %q, want it to contain %q", note, "1 node has no room for another image (at most 256 of one namespace)")
	}
	if n, note := fill("large", strings.Repeat("x", 4000), 2000); n < 40 {
		t.Errorf("jobs of large that fit: got %d, want at least 40\n%s", n, note)
	} else if n > 100 {
		t.Errorf("jobs of large that fit: got %d, want at most 100\n%s", n, note)
	} else if !strings.Contains(note, "(at most 384 KiB of one namespace)") {
		t.Errorf("note: got %q, want it to contain %q\n%d", note, "(at most 384 KiB of one namespace)", n)
	}
	if n, note := fill("shop", "", 200); n != 200 {
		t.Errorf("jobs of shop that fit: got %d, want 200\n%s", n, note)
	}
	text, err := json.Marshal(node)
	if err != nil {
		t.Errorf("unexpected error: %v; %d bytes, %v", err, len(text), err)
	} else if len(text) > maxBytes {
		t.Errorf("length of the text: got %d, want at most %d; %d bytes, %v", len(text), maxBytes, len(text), err)
	}
	for i := range 40 {
		fill(fmt.Sprintf("crowd-%d", i), strings.Repeat("x", 4000), 10)
	}
	if text, err := json.Marshal(node); err != nil {
		t.Errorf("unexpected error: %v; %d bytes, %v", err, len(text), err)
	} else if len(text) > maxBytes+maxBytes/10 {
		t.Errorf("length of the text: got %d, want at most %d; %d bytes, %v", len(text), maxBytes+maxBytes/10,
			len(text), err)
	}
}
