package stop

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/afloat-project/afloat/internal/engine/timing"
)

// hook runs the preStop hook, for the grace period at most.
func (s *Stopper) hook(ctx context.Context, r Runtime, request Request) error {
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	timer := s.Clock.AfterFunc(request.Grace, func() {
		cancel(fmt.Errorf("it took longer than the grace period of %s", request.Grace))
	})
	defer timer.Stop()

	ended := make(chan error, 1)
	go func() { ended <- s.run(bounded, r, request) }()

	select {
	case err := <-ended:
		if cause := context.Cause(bounded); err != nil && cause != nil {
			return cause
		}
		return err
	case <-bounded.Done(): // abandoned, because a runtime may be slow to notice
		return context.Cause(bounded)
	}
}

func (s *Stopper) run(ctx context.Context, r Runtime, request Request) error {
	switch hook := request.Hook; {
	case hook.Size() > mostOfHook:
		return fmt.Errorf("it has %d KiB, and hooks of more than %d KiB are not run", hook.Size()>>10, mostOfHook>>10)
	case hook.Exec != nil:
		if err := s.Places.take(ctx, request.Container.PodNamespace); err != nil {
			return err
		}
		defer s.Places.give(request.Container.PodNamespace)
		return r.Exec(ctx, request.Container.ID, hook.Exec.Command, request.Grace)
	case hook.HTTPGet != nil:
		return get(ctx, hook.HTTPGet, request)
	case hook.TCPSocket != nil:
		return connect(ctx, hook.TCPSocket, request)
	case hook.Sleep != nil:
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.Clock.After(timing.Seconds(hook.Sleep.Seconds)):
			return nil
		}
	}

	return errors.New("the hook has no known kind")
}

// address returns the host and port of a hook. The default host is the IP of the pod.
func address(host string, port intstr.IntOrString, request Request) (string, error) {
	if host == "" {
		host = request.PodIP
	}
	if host == "" {
		return "", errors.New("the pod has no IP to call")
	}

	number := port.IntValue()
	if port.Type == intstr.String {
		for _, p := range request.Ports {
			if p.Name == port.StrVal {
				number = int(p.ContainerPort)
			}
		}
	}
	if number <= 0 || number > 65535 {
		return "", fmt.Errorf("port %s is not one of the container", port.String())
	}

	return net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(number)), nil
}

// get sends the request of an httpGet hook. Like kubelet, it does not verify certificates.
func get(ctx context.Context, action *corev1.HTTPGetAction, request Request) error {
	target, err := address(action.Host, action.Port, request)
	if err != nil {
		return err
	}

	scheme := "http"
	if action.Scheme != "" {
		scheme = strings.ToLower(string(action.Scheme))
	}
	u, err := url.Parse(action.Path)
	if err != nil || u.Host != "" || u.Scheme != "" || u.Opaque != "" { // as kubelet: it is a path nevertheless
		u = &url.URL{Path: action.Path}
	}
	u.Scheme, u.Host, u.User = scheme, target, nil
	call, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return fmt.Errorf("request of the hook: %w", err)
	}

	for _, header := range action.HTTPHeaders {
		if strings.EqualFold(header.Name, "Host") {
			call.Host = header.Value
			continue
		}
		call.Header.Add(header.Name, header.Value)
	}

	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // as kubelet
		DisableKeepAlives: true,
		// What a pod answers takes the memory of the daemon.
		DisableCompression:     true,
		MaxResponseHeaderBytes: 64 << 10,
	}
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(call)
	if err != nil {
		return fmt.Errorf("calling %s: %w", u.Redacted(), err)
	}
	defer answer.Body.Close()

	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, 10<<10)); err != nil {
		return fmt.Errorf("calling %s: %w", u.Redacted(), err)
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s answered %s", u.Redacted(), answer.Status)
	}

	return nil
}

// connect opens and closes the connection of a tcpSocket hook.
func connect(ctx context.Context, action *corev1.TCPSocketAction, request Request) error {
	target, err := address(action.Host, action.Port, request)
	if err != nil {
		return err
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	_ = connection.Close()
	return nil
}
