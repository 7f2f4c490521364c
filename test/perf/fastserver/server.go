package fastserver

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Version is the version that the server reports.
const Version = "v1.36.0"

// Server is the API server.
type Server struct {
	// delay is the time after which requests are answered.
	delay time.Duration
	last  atomic.Uint64

	mu        sync.RWMutex
	resources map[schema.GroupVersionResource]*resource

	counting sync.Mutex
	counts   map[string]*Writes

	http   *http.Server
	host   string
	ca     []byte
	stop   context.CancelFunc
	ending sync.WaitGroup
}

// Writes counts the writes of one client, by "verb resource/subresource"; events and leases are not counted.
type Writes struct {
	// Done are the writes that succeeded; Refused, with the answer's code, those that did not.
	Done, Refused map[string]int
}

// Start serves on a free port of 127.0.0.1. Every request is answered after the delay.
func Start(ctx context.Context, delay time.Duration, kubelets *Kubelets) (*Server, error) {
	s := &Server{delay: delay, resources: map[schema.GroupVersionResource]*resource{}, counts: map[string]*Writes{}}
	for _, k := range builtInKinds() {
		s.resources[k.GroupVersionResource] = newResource(k, s)
	}
	certificate, err := s.certify()
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening: %w", err)
	}
	s.host = "https://" + listener.Addr().String()
	ctx, s.stop = context.WithCancel(ctx)
	s.http = &http.Server{Handler: s, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS13},
		ReadHeaderTimeout: time.Minute,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: 1000},
		ErrorLog:          log.New(io.Discard, "", 0), // connections that clients cut
		BaseContext:       func(net.Listener) context.Context { return ctx }}
	s.ending.Go(func() { _ = s.http.ServeTLS(listener, "", "") })
	s.ending.Go(func() { kubelets.run(ctx, s.resource(corev1.SchemeGroupVersion.WithResource("pods"))) })
	return s, nil
}

// Close ends the server and all watches.
func (s *Server) Close() error {
	s.stop()
	err := s.http.Close()
	s.ending.Wait()
	return err
}

// certify makes a self-signed certificate for 127.0.0.1.
func (s *Server) certify() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	s.ca = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Config returns the configuration for clients of the server.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: s.host, TLSClientConfig: rest.TLSClientConfig{CAData: s.ca}}
}

// WriteKubeconfig writes a kubeconfig file for the server.
func (s *Server) WriteKubeconfig(path string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["fast"] = &clientcmdapi.Cluster{Server: s.host, CertificateAuthorityData: s.ca}
	config.AuthInfos["fast"] = &clientcmdapi.AuthInfo{}
	config.Contexts["fast"] = &clientcmdapi.Context{Cluster: "fast", AuthInfo: "fast"}
	config.CurrentContext = "fast"
	return clientcmd.WriteToFile(*config, path)
}

// resource returns the store of a resource; nil if it is not served.
func (s *Server) resource(name schema.GroupVersionResource) *resource {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.resources[name]
}

// define serves the kind that a definition defines.
func (s *Server) define(crd *apiextensionsv1.CustomResourceDefinition) error {
	k, err := ofCRD(crd)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.resources[k.GroupVersionResource] == nil {
		s.resources[k.GroupVersionResource] = newResource(k, s)
	}
	return nil
}

// Written returns the writes of every client so far, by user agent.
func (s *Server) Written() map[string]Writes {
	s.counting.Lock()
	defer s.counting.Unlock()
	all := map[string]Writes{}
	for agent, w := range s.counts {
		all[agent] = Writes{maps.Clone(w.Done), maps.Clone(w.Refused)}
	}
	return all
}

func (s *Server) count(agent, key string, code int) {
	s.counting.Lock()
	defer s.counting.Unlock()
	w := s.counts[agent]
	if w == nil {
		w = &Writes{map[string]int{}, map[string]int{}}
		s.counts[agent] = w
	}
	if code < http.StatusMultipleChoices {
		w.Done[key]++
	} else {
		w.Refused[fmt.Sprintf("%s: %d", key, code)]++
	}
}

// errNone is the answer for resources that are not served.
var errNone = errors.New("the server could not find the requested resource")
