//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// everyReplica is the client of the tests. What is created is sent, as a dry run, to each replica of the
// manager once more: the API server may have asked the leader alone, and webhooks must work on all.
type everyReplica struct {
	client.Client
	http *http.Client

	mu sync.Mutex
	// faults are answers that are none.
	faults []string
}

func newEveryReplica(c client.Client) *everyReplica {
	return &everyReplica{Client: c, http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}} //nolint:gosec // the certificate is for the Service's name
}

// Create implements client.Writer.
func (e *everyReplica) Create(ctx context.Context, object client.Object, options ...client.CreateOption) error {
	sent, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	name := object.GetName() // none, if the API server is to make one
	if err := e.Client.Create(ctx, object, options...); err != nil || len((&client.CreateOptions{}).ApplyOptions(options).DryRun) > 0 {
		return err //nolint:wrapcheck // as the client that it stands for
	}
	if err := e.ask(context.WithoutCancel(ctx), object, name, sent); err != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.faults = append(e.faults, err.Error())
	}
	return nil
}

// ask sends the review of a creation to all webhooks that may be asked about it, of each replica.
func (e *everyReplica) ask(ctx context.Context, object client.Object, name string, sent []byte) error {
	kind, err := e.GroupVersionKindFor(object)
	if err != nil {
		return fmt.Errorf("the kind of %T: %w", object, err)
	}
	mapping, err := e.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return fmt.Errorf("the resource of %s: %w", kind, err)
	}
	if sent, err = withKind(sent, kind.GroupVersion().String(), kind.Kind); err != nil {
		return err
	}
	resource := mapping.Resource
	paths, err := e.paths(ctx, func(rule *admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(rule.Operations, admissionregistrationv1.Create) && slices.Contains(rule.APIGroups, resource.Group) &&
			slices.Contains(rule.APIVersions, resource.Version) && slices.Contains(rule.Resources, resource.Resource)
	})
	if err != nil || len(paths) == 0 {
		return err
	}
	dry := true
	review := admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{UID: uuid.NewUUID(), Operation: admissionv1.Create, DryRun: &dry, Name: name,
			Namespace: object.GetNamespace(), Object: runtime.RawExtension{Raw: sent}, UserInfo: authenticationv1.UserInfo{Username: "e2e"},
			Kind:     metav1.GroupVersionKind{Group: kind.Group, Version: kind.Version, Kind: kind.Kind},
			Resource: metav1.GroupVersionResource{Group: resource.Group, Version: resource.Version, Resource: resource.Resource}}}
	body, err := json.Marshal(review)
	if err != nil {
		return fmt.Errorf("encoding a review: %w", err)
	}
	managers, err := e.managers(ctx)
	if err != nil {
		return err
	}
	for _, manager := range managers {
		for _, path := range paths {
			if err := e.answers(ctx, &manager, path, body); err != nil {
				return fmt.Errorf("the creation of %s %s at %s of replica %s: %w", kind.Kind, object.GetName(), path, manager.Name, err)
			}
		}
	}
	return nil
}

// answers waits until a replica answers, unless it ends.
func (e *everyReplica) answers(ctx context.Context, manager *corev1.Pod, path string, body []byte) error {
	var last error
	if err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		if last = e.post(ctx, "https://"+net.JoinHostPort(manager.Status.PodIP, "9876")+path, body); last == nil {
			return true, nil
		}
		managers, err := e.managers(ctx)
		return err == nil && !slices.ContainsFunc(managers, func(m corev1.Pod) bool { return m.UID == manager.UID }), nil
	}); err != nil {
		return last
	}
	return nil
}

// post sends a review. An answer that refuses for the caller's own reason is one.
func (e *everyReplica) post(ctx context.Context, url string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := e.http.Do(request)
	if err != nil {
		return fmt.Errorf("sending a review: %w", err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("reading the answer: %w", err)
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(raw, &review); err != nil || review.Response == nil {
		return fmt.Errorf("answered %s: %s", response.Status, raw)
	}
	if result := review.Response.Result; !review.Response.Allowed && (result == nil || result.Code >= http.StatusInternalServerError) {
		return fmt.Errorf("refused: %s", raw)
	}
	return nil
}

// paths are where the webhooks are served that a rule makes match.
func (e *everyReplica) paths(ctx context.Context, matches func(*admissionregistrationv1.RuleWithOperations) bool) (paths []string, err error) {
	add := func(target admissionregistrationv1.WebhookClientConfig, rules []admissionregistrationv1.RuleWithOperations) {
		if target.Service != nil && target.Service.Path != nil && !slices.Contains(paths, *target.Service.Path) &&
			slices.ContainsFunc(rules, func(rule admissionregistrationv1.RuleWithOperations) bool { return matches(&rule) }) {
			paths = append(paths, *target.Service.Path)
		}
	}
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	if err := e.Get(ctx, types.NamespacedName{Name: installation.Mutating}, &mutating); err != nil {
		return nil, client.IgnoreNotFound(err) //nolint:wrapcheck // tests take the manager away
	}
	for i := range mutating.Webhooks {
		add(mutating.Webhooks[i].ClientConfig, mutating.Webhooks[i].Rules)
	}
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	if err := e.Get(ctx, types.NamespacedName{Name: installation.Validating}, &validating); err != nil {
		return nil, client.IgnoreNotFound(err) //nolint:wrapcheck // as above
	}
	for i := range validating.Webhooks {
		add(validating.Webhooks[i].ClientConfig, validating.Webhooks[i].Rules)
	}
	return paths, nil
}

// managers are the replicas that are ready.
func (e *everyReplica) managers(ctx context.Context) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := e.List(ctx, &pods, client.InNamespace(installation.Namespace), client.MatchingLabels{"control-plane": "controller-manager"}); err != nil {
		return nil, fmt.Errorf("listing managers: %w", err)
	}
	return slices.DeleteFunc(pods.Items, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || !readiness.Ready(&pod) || pod.Status.PodIP == ""
	}), nil
}

// withKind writes the kind into a document, as clients do when they send it.
func withKind(raw []byte, version, kind string) ([]byte, error) {
	var document map[string]any
	if err := json.Unmarshal(raw, &document); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	document["apiVersion"], document["kind"] = version, kind
	encoded, err := json.Marshal(document)
	if err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	return encoded, nil
}
