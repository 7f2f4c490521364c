package runtime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-client/pkg/util"
)

// Limits of calls to a runtime.
const (
	connectTimeout = 5 * time.Second  // a version request
	detectTimeout  = 10 * time.Second // the first listing of images
	callTimeout    = time.Minute
	// stopMargin is how long a runtime may take to stop a container beyond its grace period.
	stopMargin = 2 * time.Minute
	// runMargin is how long a runtime may take beyond the timeout of a probe's command. Kubelet allows two
	// minutes.
	runMargin      = 10 * time.Second
	maxMessageSize = 16 << 20
	// mostOfHook and mostOfEnvironment limit the output of a command in a container, because the user of the
	// container controls it.
	mostOfHook, mostOfEnvironment = 64 << 10, 1 << 20
	// commandsAtOnce limits the concurrent commands in all containers of the node, because each holds memory until it
	// ends. Hooks have places of their own in package stop: they last as long as users like, and must not keep probes
	// from running.
	commandsAtOnce = 64
)

var (
	// ErrUnavailable means that the runtime does not respond at all, for instance because it is restarting.
	// The call may be retried (ND-038).
	ErrUnavailable = errors.New("the container runtime does not answer")
	// ErrNotFound means that the runtime does not know the container or image.
	ErrNotFound = errors.New("the container runtime does not know it")
	// ErrPrintsTooMuch means that a command ended and its output was too large to be read.
	ErrPrintsTooMuch = errors.New("it printed too much")
	// ErrTimeout means that a command did not end in time.
	ErrTimeout = errors.New("it did not end in time")
)

// Runtime is the connection to one runtime. It reconnects automatically (ND-038).
type Runtime struct {
	name       string
	connection *grpc.ClientConn
	containers cri.RuntimeServiceClient
	images     cri.ImageServiceClient
	// commands has a value for each command that runs, apart from hooks.
	commands chan struct{}
}

// dial prepares a connection without sending anything. The capacity of commands limits those that run in all runtimes.
func dial(endpoint string, meters *Meters, commands chan struct{}) (*Runtime, error) {
	address, dialer, err := util.GetAddressAndDialer(endpoint)
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", endpoint, err)
	}

	connection, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithContextDialer(dialer),
		grpc.WithAuthority("localhost"),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageSize)),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: connectTimeout,
			Backoff: backoff.Config{
				BaseDelay:  100 * time.Millisecond,
				Multiplier: 1.6,
				Jitter:     0.2,
				MaxDelay:   3 * time.Second,
			},
		}),
		grpc.WithUnaryInterceptor(meters.intercept))
	if err != nil {
		return nil, fmt.Errorf("endpoint %s: %w", endpoint, err)
	}

	return &Runtime{
		connection: connection,
		containers: cri.NewRuntimeServiceClient(connection),
		images:     cri.NewImageServiceClient(connection),
		commands:   commands,
	}, nil
}

// Name returns the name that the runtime reports, which is the scheme of its container IDs (ND-035).
func (r *Runtime) Name() string { return r.name }

// version returns the name of the runtime.
func (r *Runtime) version(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()

	answer, err := r.containers.Version(ctx, &cri.VersionRequest{})
	switch {
	case status.Code(err) == codes.Unimplemented:
		return "", errors.New("it does not serve CRI v1, the only version supported (v1alpha2 is not)")
	case err != nil:
		return "", fmt.Errorf("version: %w", err)
	case answer.GetRuntimeName() == "":
		return "", errors.New("version: the runtime does not tell its name")
	}

	return answer.GetRuntimeName(), nil
}

// Containers lists the containers of a pod, including those that have ended.
func (r *Runtime) Containers(ctx context.Context, podUID string) ([]Container, error) {
	if podUID == "" {
		return nil, errors.New("listing containers: no pod UID")
	}

	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	answer, err := r.containers.ListContainers(ctx, &cri.ListContainersRequest{
		Filter: &cri.ContainerFilter{LabelSelector: map[string]string{LabelPodUID: podUID}}})
	if err != nil {
		return nil, wrap(err, "listing containers")
	}

	var list []Container
	for _, c := range answer.GetContainers() {
		if c.GetLabels()[LabelPodUID] == podUID && c.GetId() != "" {
			list = append(list, containerOf(r.name, c.GetId(), c.GetState(), c.GetCreatedAt(), c.GetImage(),
				c.GetLabels(), c.GetAnnotations()))
		}
	}

	return list, nil
}

// Status inspects a container.
func (r *Runtime) Status(ctx context.Context, id string) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	answer, err := r.containers.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: bare(id)})
	if err != nil {
		return Status{}, wrap(err, "inspecting container "+id)
	}

	s := answer.GetStatus()
	if s.GetId() != bare(id) { // without a status, the exit code would be 0
		return Status{}, fmt.Errorf("inspecting container %s: the answer is about container %q", id, s.GetId())
	}
	inspected := Status{
		Container: containerOf(r.name, s.GetId(), s.GetState(), s.GetCreatedAt(), s.GetImage(), s.GetLabels(),
			s.GetAnnotations()),
		ExitCode: s.GetExitCode(),
	}
	if s.GetStartedAt() > 0 {
		inspected.StartedAt = time.Unix(0, s.GetStartedAt())
	}

	return inspected, nil
}

// Exec runs a preStop hook in the container. A non-zero exit code is an error. The output of the command is
// ignored: if it is so large that the response of the runtime is rejected, Exec returns no error, although
// the exit code is not known.
func (r *Runtime) Exec(ctx context.Context, id string, command []string, timeout time.Duration) error {
	if _, err := r.exec(ctx, nil, id, command, timeout, mostOfHook); !errors.Is(err, ErrPrintsTooMuch) {
		return err
	}
	return nil
}

// exec runs a command and returns its standard output. most is the maximum size of the runtime's response.
func (r *Runtime) exec(
	ctx context.Context, places chan struct{}, id string, command []string, timeout time.Duration, most int,
) ([]byte, error) {
	output, err := r.run(ctx, places, id, command, timeout, time.Second, most)
	if err == nil && output.ExitCode != 0 {
		return nil, fmt.Errorf("the command ended with exit code %d", output.ExitCode)
	}
	return output.Stdout, err
}

// Output is the result of a command.
type Output struct {
	ExitCode       int32
	Stdout, Stderr []byte
}

// Run runs a command in the container. A non-zero exit code is not an error. Run returns ErrTimeout if the
// runtime ended the command after the timeout, and ErrPrintsTooMuch if it printed more than 64 KiB.
func (r *Runtime) Run(
	ctx context.Context, id string, command []string, timeout time.Duration,
) (Output, error) {
	return r.run(ctx, r.commands, id, command, timeout, runMargin, mostOfHook)
}

// run runs a command and gives the runtime a margin beyond its timeout, because the timeout counts from the
// start of the command, which may take long on a busy node. It waits for one of the places, if there are any.
func (r *Runtime) run(
	ctx context.Context, places chan struct{}, id string, command []string, timeout, margin time.Duration, most int,
) (Output, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+margin)
	defer cancel()

	if places != nil {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return Output{}, fmt.Errorf(
				"waiting for others of the %d commands that may run at once on the node: %w",
				cap(places), context.Cause(ctx))
		}
		defer func() { <-places }()
	}

	seconds := int64((timeout + time.Second - 1) / time.Second)
	answer, err := r.containers.ExecSync(ctx,
		&cri.ExecSyncRequest{ContainerId: bare(id), Cmd: command, Timeout: max(seconds, 1)},
		grpc.MaxCallRecvMsgSize(most))

	switch {
	case status.Code(err) == codes.ResourceExhausted:
		return Output{}, fmt.Errorf("running a command in container %s: %w", id, ErrPrintsTooMuch)
	case err != nil && over(ctx):
		// The runtime has not even ended the command. That says nothing about the container.
		return Output{}, fmt.Errorf("running a command in container %s: %w: %w", id, ErrUnavailable, err)
	case status.Code(err) == codes.DeadlineExceeded:
		return Output{}, fmt.Errorf("running a command in container %s: %w: %s", id, ErrTimeout,
			status.Convert(err).Message())
	case err != nil:
		return Output{}, wrap(err, "running a command in container "+id)
	}

	return Output{answer.GetExitCode(), answer.GetStdout(), answer.GetStderr()}, nil
}

// over reports whether a call has no time left. The call may end a moment before its context does, since the runtime
// counts the same time.
func over(ctx context.Context) bool {
	deadline, limited := ctx.Deadline()
	return ctx.Err() != nil || limited && !time.Now().Before(deadline)
}

// Stop stops a container. The runtime kills it after the grace period. Stopping a container that has ended is
// no error.
func (r *Runtime) Stop(ctx context.Context, id string, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, grace+stopMargin)
	defer cancel()
	_, err := r.containers.StopContainer(ctx,
		&cri.StopContainerRequest{ContainerId: bare(id), Timeout: int64(grace / time.Second)})
	return wrap(err, "stopping container "+id)
}

// Images lists all images of the runtime.
func (r *Runtime) Images(ctx context.Context) ([]Image, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()

	answer, err := r.images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, wrap(err, "listing images")
	}

	var list []Image
	for _, image := range answer.GetImages() {
		if image.GetId() == "" {
			continue
		}
		list = append(list, Image{
			ID:      image.GetId(),
			Tags:    image.GetRepoTags(),
			Digests: image.GetRepoDigests(),
			Size:    image.GetSize(),
		})
	}

	return list, nil
}

// Pull pulls an image. The labels and annotations are passed as those of a sandbox (IMG-018, IMG-139). The
// caller limits the time by the context.
func (r *Runtime) Pull(
	ctx context.Context, image string, auth Auth, labels, annotations map[string]string,
) error {
	request := &cri.PullImageRequest{
		Image:         &cri.ImageSpec{Image: image, Annotations: annotations},
		SandboxConfig: &cri.PodSandboxConfig{Labels: labels, Annotations: annotations},
	}
	if auth != (Auth{}) {
		request.Auth = &cri.AuthConfig{
			Username:      auth.Username,
			Password:      auth.Password,
			IdentityToken: auth.IdentityToken,
			RegistryToken: auth.RegistryToken,
		}
	}

	_, err := r.images.PullImage(ctx, request)
	if status.Code(err) == codes.AlreadyExists {
		return nil
	}

	return wrap(err, "pulling "+image)
}

// sandboxes returns the number of kubelet's pods that the runtime is running.
func (r *Runtime) sandboxes(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, detectTimeout)
	defer cancel()

	answer, err := r.containers.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{
		Filter: &cri.PodSandboxFilter{
			State: &cri.PodSandboxStateValue{State: cri.PodSandboxState_SANDBOX_READY},
		},
	})
	if err != nil {
		return 0, wrap(err, "listing sandboxes")
	}

	pods := 0
	for _, sandbox := range answer.GetItems() {
		if sandbox.GetLabels()[LabelPodUID] != "" {
			pods++
		}
	}

	return pods, nil
}

// wrap adds what was being done, and ErrUnavailable or ErrNotFound if they apply. The text of the runtime is
// kept.
func wrap(err error, doing string) error {
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.Unavailable:
		return fmt.Errorf("%s: %w: %s", doing, ErrUnavailable, status.Convert(err).Message())
	case codes.NotFound:
		return fmt.Errorf("%s: %w: %s", doing, ErrNotFound, status.Convert(err).Message())
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// bare returns the part of an ID that the runtime itself knows.
func bare(id string) string {
	if _, rest, ok := SplitID(id); ok {
		return rest
	}
	return id
}
