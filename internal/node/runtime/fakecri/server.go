// Package fakecri is a container runtime for tests: it serves CRI v1 on a unix socket from a few tables in
// memory, and restarts containers as kubelet would. Its fields make it fail on purpose; they may be set
// before or while it serves.
package fakecri

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Container is one container of the fake.
type Container struct {
	// ID is without scheme.
	ID, Name, Namespace, Pod, UID string
	State                         cri.ContainerState
	Created, Started              time.Time
	ExitCode                      int32
	RestartCount                  int
	// Hash is kubelet's, in hexadecimal; empty means none.
	Hash, Image string
	Annotations map[string]string
	// Env is in the verbose status if NoRecord is not set.
	Env      []string
	NoRecord bool
}

// Call is a request that changed something, or ran a command.
type Call struct {
	Method, ID string
	Grace      time.Duration
	Command    []string
	Image      string
	Auth       *cri.AuthConfig
	Sandbox    *cri.PodSandboxConfig
}

// Server is the fake. Its exported fields are read under its lock: change them with Set.
type Server struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer

	// Name is the name that the runtime reports; Path is its socket.
	Name, Path string
	// Pods is how many of kubelet's pods it runs.
	Pods int
	// OnExec answers commands; nil answers NotFound.
	OnExec func(id string, command []string) (stdout string, code int32, err error)
	// OnStop is called with the container before it ends; its error is the answer, and the container goes on.
	// It may wait.
	OnStop func(ctx context.Context, c Container, grace time.Duration) error
	// Restart makes the new container after a stop, as kubelet does; nil makes none.
	Restart func(old Container) *Container
	// OnPull is called for a pull; its error is the answer. It may wait.
	OnPull func(ctx context.Context, image string, auth *cri.AuthConfig) error
	// Failing has the methods that fail, with their errors.
	Failing map[string]error

	mu         sync.Mutex
	containers []*Container
	images     []*cri.Image
	calls      []Call
	grpc       *grpc.Server
}

// Start serves a fake runtime called containerd on a socket in a new folder until the test ends.
func Start(t testing.TB) *Server {
	t.Helper()
	folder, err := os.MkdirTemp("", "cri") // the paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Name: "containerd", Path: filepath.Join(folder, "containerd.sock")}
	s.Listen(t)
	t.Cleanup(func() {
		s.Close()
		_ = os.RemoveAll(folder)
	})
	return s
}

// Root is the folder of the socket.
func (s *Server) Root() string { return filepath.Dir(s.Path) }

// Listen begins to serve, also again after Close.
func (s *Server) Listen(t testing.TB) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", s.Path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(s.intercept))
	cri.RegisterRuntimeServiceServer(server, s)
	cri.RegisterImageServiceServer(server, s)
	s.mu.Lock()
	s.grpc = server
	s.mu.Unlock()
	go func() { _ = server.Serve(listener) }()
}

// Close ends all connections; the containers stay, as with a runtime that restarts.
func (s *Server) Close() {
	s.mu.Lock()
	server := s.grpc
	s.grpc = nil
	s.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

func (s *Server) intercept(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler,
) (any, error) {
	method := info.FullMethod[strings.LastIndex(info.FullMethod, "/")+1:]
	s.mu.Lock()
	err := s.Failing[method]
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return handle(ctx, request)
}

// Set changes the server's fields.
func (s *Server) Set(change func(*Server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// Add adds or replaces a container.
func (s *Server) Add(c Container) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(c)
}

func (s *Server) add(c Container) {
	if at := slices.IndexFunc(s.containers, func(o *Container) bool { return o.ID == c.ID }); at >= 0 {
		s.containers[at] = &c
		return
	}
	s.containers = append(s.containers, &c)
}

// Remove forgets a container.
func (s *Server) Remove(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.containers = slices.DeleteFunc(s.containers, func(c *Container) bool { return c.ID == id })
}

// Containers returns copies of all containers.
func (s *Server) Containers() []Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Container, len(s.containers))
	for i, c := range s.containers {
		list[i] = *c
	}
	return list
}

// AddImage adds an image to the store.
func (s *Server) AddImage(id string, tags, digests []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images = append(s.images, &cri.Image{Id: id, RepoTags: tags, RepoDigests: digests, Size: 1000})
}

// Calls returns the calls of a method so far.
func (s *Server) Calls(method string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.calls), func(c Call) bool { return c.Method != method })
}

// Version implements CRI.
func (s *Server) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &cri.VersionResponse{
		Version:           "0.1.0",
		RuntimeName:       s.Name,
		RuntimeVersion:    "2",
		RuntimeApiVersion: "v1",
	}, nil
}

// ListPodSandbox implements CRI.
func (s *Server) ListPodSandbox(
	context.Context, *cri.ListPodSandboxRequest,
) (*cri.ListPodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &cri.ListPodSandboxResponse{}
	for i := range s.Pods {
		list.Items = append(list.Items,
			&cri.PodSandbox{
				Id:     fmt.Sprint(i),
				Labels: map[string]string{"io.kubernetes.pod.uid": fmt.Sprint(i)},
			})
	}
	return list, nil
}

func (c *Container) labels() map[string]string {
	return map[string]string{
		"io.kubernetes.container.name": c.Name,
		"io.kubernetes.pod.name":       c.Pod,
		"io.kubernetes.pod.namespace":  c.Namespace,
		"io.kubernetes.pod.uid":        c.UID,
	}
}

func (c *Container) annotations() map[string]string {
	annotations := map[string]string{"io.kubernetes.container.restartCount": fmt.Sprint(c.RestartCount)}
	if c.Hash != "" {
		annotations["io.kubernetes.container.hash"] = c.Hash
	}
	maps.Copy(annotations, c.Annotations)
	return annotations
}

// ListContainers implements CRI.
func (s *Server) ListContainers(
	_ context.Context, request *cri.ListContainersRequest,
) (*cri.ListContainersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	list := &cri.ListContainersResponse{}
	for _, c := range s.containers {
		if uid := request.GetFilter().GetLabelSelector()["io.kubernetes.pod.uid"]; uid == "" || uid == c.UID {
			list.Containers = append(list.Containers,
				&cri.Container{
					Id:          c.ID,
					State:       c.State,
					CreatedAt:   c.Created.UnixNano(),
					Image:       &cri.ImageSpec{Image: "sha256:" + c.Image, UserSpecifiedImage: c.Image},
					Labels:      c.labels(),
					Annotations: c.annotations(),
				})
		}
	}

	return list, nil
}

func (s *Server) find(id string) (*Container, error) {
	for _, c := range s.containers {
		if c.ID == id {
			return c, nil
		}
	}
	return nil, status.Errorf(codes.NotFound,
		"an error occurred when try to find container %q: not found", id)
}

// ContainerStatus implements CRI.
func (s *Server) ContainerStatus(
	_ context.Context, request *cri.ContainerStatusRequest,
) (*cri.ContainerStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	c, err := s.find(request.GetContainerId())
	if err != nil {
		return nil, err
	}

	answer := &cri.ContainerStatusResponse{Status: &cri.ContainerStatus{
		Id:          c.ID,
		State:       c.State,
		CreatedAt:   c.Created.UnixNano(),
		StartedAt:   c.Started.UnixNano(),
		ExitCode:    c.ExitCode,
		Image:       &cri.ImageSpec{UserSpecifiedImage: c.Image},
		Labels:      c.labels(),
		Annotations: c.annotations(),
	}}
	if request.GetVerbose() && !c.NoRecord {
		quoted := make([]string, len(c.Env))
		for i, entry := range c.Env {
			quoted[i] = fmt.Sprintf("%q", entry)
		}
		answer.Info = map[string]string{"info": `{"pid":1,"runtimeSpec":{"process":{"env":[` +
			strings.Join(quoted, ",") + `]}}}`}
	}

	return answer, nil
}

// ExecSync implements CRI.
func (s *Server) ExecSync(_ context.Context, request *cri.ExecSyncRequest) (*cri.ExecSyncResponse, error) {
	s.mu.Lock()
	_, err := s.find(request.GetContainerId())
	exec := s.OnExec
	s.calls = append(s.calls, Call{
		Method:  "ExecSync",
		ID:      request.GetContainerId(),
		Command: request.GetCmd(),
	})
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if exec == nil {
		return nil, status.Errorf(codes.NotFound, "executable %q not found", request.GetCmd()[0])
	}

	stdout, code, err := exec(request.GetContainerId(), request.GetCmd())
	return &cri.ExecSyncResponse{Stdout: []byte(stdout), ExitCode: code}, err
}

// StopContainer implements CRI.
func (s *Server) StopContainer(
	ctx context.Context, request *cri.StopContainerRequest,
) (*cri.StopContainerResponse, error) {
	grace := time.Duration(request.GetTimeout()) * time.Second
	s.mu.Lock()
	c, err := s.find(request.GetContainerId())
	if err != nil {
		s.mu.Unlock()
		return nil, err
	}

	s.calls = append(s.calls, Call{Method: "StopContainer", ID: c.ID, Grace: grace})
	stopped, onStop := *c, s.OnStop
	s.mu.Unlock()
	if onStop != nil {
		if err := onStop(ctx, stopped, grace); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()

	if c.State == cri.ContainerState_CONTAINER_EXITED {
		return &cri.StopContainerResponse{}, nil
	}

	c.State, c.ExitCode = cri.ContainerState_CONTAINER_EXITED, 143
	if s.Restart != nil {
		if successor := s.Restart(*c); successor != nil {
			s.add(*successor)
		}
	}

	return &cri.StopContainerResponse{}, nil
}

// ListImages implements CRI.
func (s *Server) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &cri.ListImagesResponse{Images: slices.Clone(s.images)}, nil
}

// PullImage implements CRI: the image is in the store afterwards.
func (s *Server) PullImage(
	ctx context.Context, request *cri.PullImageRequest,
) (*cri.PullImageResponse, error) {
	image := request.GetImage().GetImage()
	s.mu.Lock()
	s.calls = append(s.calls, Call{
		Method:  "PullImage",
		Image:   image,
		Auth:    request.GetAuth(),
		Sandbox: request.GetSandboxConfig(),
	})
	onPull := s.OnPull
	s.mu.Unlock()
	if onPull != nil {
		if err := onPull(ctx, image, request.GetAuth()); err != nil {
			return nil, err
		}
	}
	id := "sha256:id-of-" + image
	if strings.Contains(image, "@") {
		s.AddImage(id, nil, []string{image})
	} else {
		s.AddImage(id, []string{image}, nil)
	}

	return &cri.PullImageResponse{ImageRef: id}, nil
}
