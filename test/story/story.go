// Package story plays the demo on a cluster: a CloneSet is created, then scaled in and given a new image, and
// every pod is watched while it is updated in place. `make demo` shows it to a person, the end-to-end tests
// check what it reports.
package story

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
)

// Create and Update are the two manifests, as a user writes them.
var (
	//go:embed create.yaml
	Create string
	//go:embed update.yaml
	Update string
)

const (
	name      = "nginxweb1"
	namespace = "default"
	// pollEvery is how often the pods are looked at; changes shorter than that are timed by the pods' own
	// conditions.
	pollEvery = 200 * time.Millisecond
)

// Pod is what the story records about one pod.
type Pod struct {
	Name, UID, Node, IP           string
	ImageBefore, ImageAfter       string
	RestartsBefore, RestartsAfter int32
	NotReady                      time.Duration
	// Recreated: the pod did not exist before the update, or something changed that an update in place keeps.
	Recreated bool
}

// Frame is the state of affairs at one moment.
type Frame struct {
	Title   string
	Elapsed time.Duration
	Set     *appsv1beta1.CloneSet
	Pods    []corev1.Pod
}

// Story plays on a cluster.
type Story struct {
	Client client.Client
	// Show is called with every frame; it may be nil.
	Show func(Frame)
	// Limit is how long each part may take.
	Limit time.Duration
}

// NewClient returns a client that knows the project's kinds.
func NewClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), appsv1alpha1.AddToScheme(scheme), appsv1beta1.AddToScheme(scheme), policyv1beta1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("building the client: %w", err)
	}
	return c, nil
}

// Apply applies a manifest as it is, by server-side apply.
func Apply(ctx context.Context, c client.Client, manifest string) error {
	object := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(manifest), &object.Object); err != nil {
		return fmt.Errorf("reading manifest: %w", err)
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("afloat-demo"),
		client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// Play plays the whole story and returns the result for each pod that exists at the end.
func (s *Story) Play(ctx context.Context) ([]Pod, error) {
	if err := s.Clean(ctx); err != nil {
		return nil, err
	}
	if err := Apply(ctx, s.Client, Create); err != nil {
		return nil, err
	}
	before, _, err := s.follow(ctx, "5 pods of nginx:perl are created", func(set *appsv1beta1.CloneSet, pods []corev1.Pod) bool {
		return len(pods) == 5 && set.Status.AvailableReplicas == 5
	})
	if err != nil {
		return nil, err
	}
	if err := Apply(ctx, s.Client, Update); err != nil {
		return nil, err
	}
	after, notReady, err := s.follow(ctx, "replicas 5 to 4, nginx:perl to nginx:latest, in place, one pod at a time",
		func(set *appsv1beta1.CloneSet, pods []corev1.Pod) bool {
			return len(pods) == 4 && set.Status.ObservedGeneration == set.Generation && set.Status.UpdatedAvailableReplicas == 4 &&
				set.Status.Replicas == 4
		})
	if err != nil {
		return nil, err
	}
	return compare(before, after, notReady), nil
}

// Clean removes the objects of an earlier run.
func (s *Story) Clean(ctx context.Context) error {
	set := &appsv1beta1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := s.Client.Delete(ctx, set, client.PropagationPolicy(metav1.DeletePropagationForeground)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the CloneSet of an earlier demo: %w", err)
	}
	return s.until(ctx, "the pods of an earlier demo end", func() (bool, error) {
		pods, err := s.pods(ctx, true)
		if err != nil {
			return false, err
		}
		err = s.Client.Get(ctx, client.ObjectKeyFromObject(set), set)
		return len(pods) == 0 && apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// follow shows frames until the condition holds. It returns the pods and how long each was not ready.
func (s *Story) follow(ctx context.Context, title string,
	done func(*appsv1beta1.CloneSet, []corev1.Pod) bool) ([]corev1.Pod, map[string]time.Duration, error) {
	start := time.Now()
	notReady, since := map[string]time.Duration{}, map[string]time.Time{}
	var last []corev1.Pod
	err := s.until(ctx, title, func() (bool, error) {
		set := &appsv1beta1.CloneSet{}
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, set); err != nil {
			return false, fmt.Errorf("reading the CloneSet: %w", err)
		}
		pods, err := s.pods(ctx, false)
		if err != nil {
			return false, err
		}
		for i := range pods {
			key := pods[i].Name
			switch from, down := since[key]; {
			case !Ready(&pods[i]) && !down:
				since[key] = time.Now()
			case Ready(&pods[i]) && down:
				notReady[key] += time.Since(from)
				delete(since, key)
			}
		}
		last = pods
		if s.Show != nil {
			s.Show(Frame{Title: title, Elapsed: time.Since(start), Set: set, Pods: pods})
		}
		return done(set, pods), nil
	})
	return last, notReady, err
}

func (s *Story) until(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		ok, err := done()
		if err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: not within %s", what, s.Limit)
		case <-tick.C:
		}
	}
}

func (s *Story) pods(ctx context.Context, terminating bool) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := s.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{"app": name}); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	pods := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !terminating && pod.DeletionTimestamp != nil })
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods, nil
}

// Ready tells whether kubelet calls the pod ready.
func Ready(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func compare(before, after []corev1.Pod, notReady map[string]time.Duration) []Pod {
	var pods []Pod
	for i := range after {
		now := &after[i]
		pod := Pod{Name: now.Name, UID: string(now.UID), Node: now.Spec.NodeName, IP: now.Status.PodIP,
			ImageAfter:    now.Spec.Containers[0].Image,
			RestartsAfter: restarts(now), NotReady: notReady[now.Name], Recreated: true}
		for j := range before {
			if then := &before[j]; then.Name == now.Name {
				pod.ImageBefore, pod.RestartsBefore = then.Spec.Containers[0].Image, restarts(then)
				pod.Recreated = then.UID != now.UID || then.Spec.NodeName != now.Spec.NodeName || then.Status.PodIP != now.Status.PodIP ||
					pod.ImageBefore == pod.ImageAfter || pod.RestartsAfter != pod.RestartsBefore+1
			}
		}
		pods = append(pods, pod)
	}
	return pods
}

func restarts(pod *corev1.Pod) int32 {
	if len(pod.Status.ContainerStatuses) == 0 {
		return 0
	}
	return pod.Status.ContainerStatuses[0].RestartCount
}
