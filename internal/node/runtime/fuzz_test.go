package runtime

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/afloat-project/afloat/internal/fuzzing"
)

// answering is a runtime that gives the same answers to all requests.
type answering struct {
	cri.RuntimeServiceClient
	cri.ImageServiceClient

	Containers *cri.ListContainersResponse  `json:"containers"`
	Inspected  *cri.ContainerStatusResponse `json:"status"`
	Images     *cri.ListImagesResponse      `json:"images"`
	Sandboxes  *cri.ListPodSandboxResponse  `json:"sandboxes"`
	Named      *cri.VersionResponse         `json:"version"`
	Ran        *cri.ExecSyncResponse        `json:"exec"`
}

func (a *answering) ListContainers(context.Context, *cri.ListContainersRequest, ...grpc.CallOption) (*cri.ListContainersResponse, error) {
	return a.Containers, nil
}

func (a *answering) ContainerStatus(context.Context, *cri.ContainerStatusRequest, ...grpc.CallOption) (*cri.ContainerStatusResponse, error) {
	return a.Inspected, nil
}

func (a *answering) ListImages(context.Context, *cri.ListImagesRequest, ...grpc.CallOption) (*cri.ListImagesResponse, error) {
	return a.Images, nil
}

func (a *answering) ListPodSandbox(context.Context, *cri.ListPodSandboxRequest, ...grpc.CallOption) (*cri.ListPodSandboxResponse, error) {
	return a.Sandboxes, nil
}

func (a *answering) Version(context.Context, *cri.VersionRequest, ...grpc.CallOption) (*cri.VersionResponse, error) {
	return a.Named, nil
}

func (a *answering) ExecSync(context.Context, *cri.ExecSyncRequest, ...grpc.CallOption) (*cri.ExecSyncResponse, error) {
	return a.Ran, nil
}

// FuzzAnswers: whatever a runtime answers, containers are those of the pod that was asked about, each with an
// ID that the runtime can be found by; a status is that of the container that was asked about, or an error;
// images have IDs; and no variable of an environment is invented.
func FuzzAnswers(f *testing.F) {
	const answers = `{"version":{"runtime_name":"containerd"},"containers":{"containers":[{"id":"c","state":1,"created_at":5,"image":{"user_specified_image":"i:1"},` +
		`"labels":{"io.kubernetes.pod.uid":"u","io.kubernetes.container.name":"app"},"annotations":{"io.kubernetes.container.hash":"ff","io.kubernetes.container.restartCount":"3"}},` +
		`{"id":"d","state":2,"labels":{"io.kubernetes.pod.uid":"other"}}]},` +
		`"status":{"status":{"id":"c","started_at":7,"exit_code":3},"info":{"info":"{\"runtimeSpec\":{\"process\":{\"env\":[\"A=b=c\",\"D\"]}}}"}},` +
		`"images":{"images":[{"id":"sha256:1","repo_tags":["i:1"],"repo_digests":["i@sha256:2"],"size":5}]},` +
		`"sandboxes":{"items":[{"labels":{"io.kubernetes.pod.uid":"u"}}]},"exec":{"exit_code":0,"stdout":"QT1iAEM9ZAA="}}`
	f.Add(answers, []byte{})
	f.Add(answers, []byte("\x01\x00\x01\x02\x00\x03"))
	f.Add(`{}`, []byte{})
	f.Add(`{"version":{"runtime_name":"containerd"},"status":{"status":{}},"containers":{"containers":[null,{"labels":{"io.kubernetes.pod.uid":"u"}}]},"images":{"images":[null]}}`, []byte{})
	f.Fuzz(func(t *testing.T, text string, changes []byte) {
		text = fuzzing.Edit(text, changes, "id", "labels", "annotations", "status", "image", "info", "env",
			LabelPodUID, LabelContainerName, AnnotationHash, AnnotationRestartCount)
		given := &answering{}
		if json.Unmarshal([]byte(text), given) != nil {
			return
		}
		r := &Runtime{containers: given, images: given, commands: make(chan struct{}, 1)}
		var err error
		if r.name, err = r.version(t.Context()); (err == nil) != (r.name != "") {
			t.Errorf("%s: the runtime %q has the error %v", text, r.name, err)
		}
		if err != nil {
			return
		}

		listed, err := r.Containers(t.Context(), "u")
		if err != nil || len(listed) > len(given.Containers.GetContainers()) {
			t.Errorf("%s has the containers %+v, %v", text, listed, err)
		}
		for i := range listed {
			if listed[i].PodUID != "u" || listed[i].ID == r.name+"://" {
				t.Errorf("%s has container %+v", text, listed[i])
			}
			if newest := Newest(listed, listed[i].Name); newest == nil || newest != &listed[i] && listed[i].newerThan(newest) {
				t.Errorf("%s: %+v is newer than the newest, %+v", text, listed[i], newest)
			}
		}
		if inspected, err := r.Status(t.Context(), "x://c"); err == nil && (inspected.ID != r.name+"://c" ||
			given.Inspected.GetStatus() == nil || !inspected.StartedAt.IsZero() && given.Inspected.GetStatus().GetStartedAt() <= 0) {
			t.Errorf("%s has status %+v", text, inspected)
		}
		images, err := r.Images(t.Context())
		if err != nil || len(images) > len(given.Images.GetImages()) {
			t.Errorf("%s has the images %+v, %v", text, images, err)
		}
		for i := range images {
			if images[i].ID == "" {
				t.Errorf("%s has an image without ID: %+v", text, images[i])
			}
		}
		if pods, err := r.sandboxes(t.Context()); err != nil || pods > len(given.Sandboxes.GetItems()) {
			t.Errorf("%s has %d pods, %v", text, pods, err)
		}
		if environment, err := r.Environment(t.Context(), "x://c"); err == nil {
			var record struct {
				RuntimeSpec struct{ Process struct{ Env []string } }
			}
			_ = json.Unmarshal([]byte(given.Inspected.GetInfo()["info"]), &record)
			given := "\x00" + strings.Join(record.RuntimeSpec.Process.Env, "\x00") + "\x00" + string(given.Ran.GetStdout()) + "\x00"
			for name, value := range environment {
				if !strings.Contains(given, "\x00"+name+"="+value+"\x00") {
					t.Errorf("%s has no variable %q=%q", text, name, value)
				}
			}
		}
	})
}
