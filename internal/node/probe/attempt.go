package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// mostOfBody is how much of an HTTP answer is read.
const mostOfBody = 10 << 10

// Commands runs commands in containers.
type Commands interface {
	// Run runs a command. The error is runtime.ErrTimeout if it did not end in time, and
	// runtime.ErrPrintsTooMuch if its output could not be read; any other says nothing about the command.
	Run(ctx context.Context, id string, command []string, timeout time.Duration) (runtime.Output, error)
}

// attempter carries out attempts as kubelet does.
type attempter struct {
	commands func(container string) (Commands, error)
	http     *http.Client
}

func newAttempter(commands func(container string) (Commands, error)) *attempter {
	transport := &http.Transport{
		DialContext: dialer().DialContext,
		//nolint:gosec // as kubelet: pods have certificates of their own (PPM-089)
		TLSClientConfig:        &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives:      true,
		DisableCompression:     true,
		Proxy:                  nil,
		MaxResponseHeaderBytes: 64 << 10,
	}
	return &attempter{commands: commands, http: &http.Client{Transport: transport, CheckRedirect: sameHost}}
}

// dialer leaves no sockets behind that wait for late packets: probes would use up the ports of the node.
func dialer() *net.Dialer {
	return &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			//nolint:gosec // a descriptor
			_ = syscall.SetsockoptLinger(int(fd), syscall.SOL_SOCKET, syscall.SO_LINGER,
				&syscall.Linger{Onoff: 1, Linger: 1})
		})
	}}
}

// sameHost follows redirects within the pod. One to elsewhere is an answer, and nothing is sent there.
func sameHost(next *http.Request, via []*http.Request) error {
	if next.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

// attempt makes one attempt.
func (a *attempter) attempt(ctx context.Context, d *Definition, container string) Attempt {
	// whoever does not heed the time of the attempt
	ctx, cancel := context.WithTimeout(ctx, d.Timeout+15*time.Second)
	defer cancel()
	switch h := &d.Handler; {
	case h.Exec != nil:
		return a.exec(ctx, d, container)
	case h.HTTPGet != nil:
		return a.get(ctx, d, h.HTTPGet)
	case h.TCPSocket != nil:
		return a.connect(ctx, d)
	}
	return Attempt{Outcome: None}
}

func (a *attempter) exec(ctx context.Context, d *Definition, container string) Attempt {
	commands, err := a.commands(container)
	if err != nil {
		return Attempt{None, err.Error()}
	}

	output, err := commands.Run(ctx, container, d.Handler.Exec.Command, d.Timeout)
	switch {
	case errors.Is(err, runtime.ErrTimeout):
		return Attempt{Failure, fmt.Sprintf("the command did not end within %s", d.Timeout)}
	case errors.Is(err, runtime.ErrPrintsTooMuch) && !d.liveness(): // kubelet does not restart containers for that
		return Attempt{Failure, "the command printed so much that its result cannot be read"}
	case err != nil:
		return Attempt{None, err.Error()}
	case output.ExitCode != 0:
		return Attempt{Failure, string(output.Stderr)}
	}

	return Attempt{Success, string(output.Stdout)}
}

func (a *attempter) connect(ctx context.Context, d *Definition) Attempt {
	dial := dialer()
	dial.Timeout = d.Timeout
	connection, err := dial.DialContext(ctx, "tcp", d.address(d.Handler.TCPSocket.Port))
	if err != nil {
		return Attempt{Failure, err.Error()}
	}
	_ = connection.Close()
	return Attempt{Outcome: Success}
}

func (a *attempter) get(ctx context.Context, d *Definition, action *appsv1alpha1.HTTPGetAction) Attempt {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()

	request, err := requestOf(ctx, d, action)
	if err != nil {
		return Attempt{Failure, err.Error()}
	}

	answer, err := a.http.Do(request)
	if err != nil {
		return Attempt{Failure, err.Error()}
	}
	defer func() { _ = answer.Body.Close() }()

	body, err := io.ReadAll(io.LimitReader(answer.Body, mostOfBody))
	if err != nil {
		return Attempt{Failure, err.Error()}
	}
	if answer.StatusCode < 200 || answer.StatusCode >= 400 {
		return Attempt{Failure, fmt.Sprintf("HTTP probe failed with status code %d: %s",
			answer.StatusCode, body)}
	}

	return Attempt{Success, string(body)}
}

// requestOf is the request of an HTTP probe (PPM-089).
func requestOf(
	ctx context.Context, d *Definition, action *appsv1alpha1.HTTPGetAction,
) (*http.Request, error) {
	target, err := url.Parse(action.Path)
	if err != nil || target.Host != "" || target.Scheme != "" || target.Opaque != "" {
		target = &url.URL{Path: action.Path}
	}
	target.Scheme, target.Host, target.User = strings.ToLower(string(action.Scheme)),
		d.address(action.Port), nil
	if target.Scheme == "" {
		target.Scheme = "http"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("building the request: %w", err)
	}

	for _, header := range action.HTTPHeaders {
		request.Header.Add(header.Name, header.Value)
	}

	if host := request.Header.Get("Host"); host != "" {
		request.Host = host
	}
	if _, set := request.Header["User-Agent"]; !set {
		request.Header.Set("User-Agent", "kube-probe")
	}

	switch accept, set := request.Header["Accept"]; {
	case !set:
		request.Header.Set("Accept", "*/*")
	case len(accept) == 1 && accept[0] == "":
		request.Header.Del("Accept")
	}

	return request, nil
}
