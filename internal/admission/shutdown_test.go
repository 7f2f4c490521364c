package admission

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
	clonesetcontroller "github.com/afloat-project/afloat/internal/kinds/cloneset/controller"
)

// admit sends the creation of a CloneSet, and returns an error if the answer is wrong.
func admit(ctx context.Context, client *http.Client, address string) error {
	request := &admissionv1.AdmissionRequest{UID: "uid", Operation: admissionv1.Create, Namespace: "shop", Name: "web",
		Kind: metav1.GroupVersionKind{Group: "apps.kruise.io", Version: "v1beta1", Kind: "CloneSet"}}
	request.Object.Raw = []byte(webhooktest.CloneSet("v1beta1", webhooktest.GoodTemplate, ""))
	body, err := json.Marshal(&admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{Kind: "AdmissionReview",
		APIVersion: "admission.k8s.io/v1"}, Request: request})
	if err != nil {
		return err
	}
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+mutateCloneSetPath, strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	post.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(post)
	if err != nil {
		return err
	}
	var review admissionv1.AdmissionReview
	if err := errors.Join(json.NewDecoder(answer.Body).Decode(&review), answer.Body.Close()); err != nil {
		return err
	}
	if r := review.Response; r == nil || !r.Allowed || len(r.Warnings) > 0 ||
		!strings.Contains(string(r.Patch), "terminationMessagePolicy") {
		return fmt.Errorf("answered without the API server's defaults: %+v", r)
	}
	return nil
}

// completing is an API server that completes templates, after let has returned.
func completing(t *testing.T, let func()) http.Handler {
	w := clonesetcontroller.CloneSets(webhooktest.Environment(t, &webhooktest.APIServer{Answer: func(template framework.Document) (int, any) {
		let()
		template["spec"].(framework.Document)["containers"].([]any)[0].(framework.Document)["terminationMessagePolicy"] = "File"
		return webhooktest.Accepts(template)
	}}))
	return &admission.Webhook{Handler: webhooktest.Handler(w.Mutate)}
}

// OPS-101: the manager is updated while CloneSets are admitted all the time. The ending replica is called
// until all callers know that it ends. No request fails, and none is accepted without defaults, which would
// roll pods.
func TestNoAdmissionFailsWhileAReplicaIsAskedToEnd(t *testing.T) {
	var served atomic.Int64
	goes := startReplica(t, map[string]http.Handler{mutateCloneSetPath: completing(t, func() { served.Add(1) })})
	stays := startReplica(t, map[string]http.Handler{mutateCloneSetPath: completing(t, func() {})})
	var (
		learnt, over atomic.Bool
		turn         atomic.Int64
		clients      sync.WaitGroup
		answered     [16]atomic.Int64
		toGoing      atomic.Int64
	)
	service := func(ctx context.Context, network, _ string) (net.Conn, error) { // a Service with two endpoints, and later with one
		address := stays.address
		if !learnt.Load() && turn.Add(1)%2 == 0 {
			address = goes.address
			toGoing.Add(1)
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	for i := range answered {
		clients.Go(func() {
			transport := insecure()
			transport.DialContext = service
			defer transport.CloseIdleConnections()
			for !over.Load() {
				if err := admit(t.Context(), &http.Client{Transport: transport}, "manager.sys.svc:443"); err != nil {
					t.Errorf("an admission during the change of replicas: %v", err)
					return
				}
				answered[i].Add(1)
			}
		})
	}
	defer clients.Wait()
	defer over.Store(true)
	more := func(what string, times int64) {
		t.Helper()
		var before [len(answered)]int64
		for i := range before {
			before[i] = answered[i].Load()
		}
		err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			for i := range before {
				if answered[i].Load() < before[i]+times {
					return t.Failed(), nil
				}
			}
			return true, nil
		})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if t.Failed() {
			t.Fatalf("%s: there was a failure before", what)
		}
	}
	more("both serve", 5)
	goes.asked()
	calls := toGoing.Load()
	more("one is asked to end and still called", 10)
	if toGoing.Load() == calls {
		t.Error("no new connection to the replica that goes")
	}
	learnt.Store(true)
	more("everybody has learnt it", 2)
	last := served.Load()
	more("nobody has a connection left to it", 5)
	if n := served.Load() - last; n > 0 {
		t.Errorf("%d requests on connections that it should have closed", n)
	}
	goes.over() // the delay is over
	<-goes.ended
	more("one is gone", 5)
	if err := goes.get(t, tls.VersionTLS13); err == nil {
		t.Error("the replica that goes still serves")
	}
}

// OPS-101: an admission that is under way when the manager ends is answered in full.
func TestAnAdmissionUnderWayIsAnsweredWhenTheManagerEnds(t *testing.T) {
	underWay, goOn := make(chan struct{}), make(chan struct{})
	r := startReplica(t, map[string]http.Handler{mutateCloneSetPath: completing(t, func() { close(underWay); <-goOn })})
	result := make(chan error, 1)
	transport := insecure()
	defer transport.CloseIdleConnections()
	go func() { result <- admit(t.Context(), &http.Client{Transport: transport}, r.address) }()
	<-underWay
	r.over()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return r.get(t, tls.VersionTLS13) != nil, nil // it accepts no connection any more
	})
	if err != nil {
		t.Errorf("new connections while the server ends: want them refused: %v", err)
	}
	close(goOn)
	if err := <-result; err != nil {
		t.Errorf("the request under way: %v", err)
	}
}

// The handling of a request ends when nobody waits for it any more.
func TestAnAdmissionEndsWithItsCaller(t *testing.T) {
	begun, ended, gaveUp := make(chan struct{}), make(chan error, 1), make(chan struct{})
	r := startReplica(t, map[string]http.Handler{"/long": http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		close(begun)
		select {
		case <-request.Context().Done():
			ended <- nil
			<-gaveUp // otherwise the answer could come before the caller gives up
		case <-time.After(time.Minute):
			ended <- errors.New("the request went on")
		}
	})})
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+r.address+"/long", nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := insecure()
	defer transport.CloseIdleConnections()
	go func() {
		<-begun
		cancel()
	}()
	answer, err := (&http.Client{Transport: transport}).Do(request)
	close(gaveUp)
	if err == nil {
		_ = answer.Body.Close()
		t.Error("answered")
	}
	if err := <-ended; err != nil {
		t.Errorf("the end of the server: %v", err)
	}
}
