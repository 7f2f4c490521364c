package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// known is what is remembered of the copies.
type known struct {
	// using holds the jobs, as namespace/name, that may use copies.
	using map[string]bool
	// number is how many copies there are, by the namespace of their sources.
	number map[string]int
}

// namespaceOf returns the namespace of an object that is written as namespace/name.
func namespaceOf(name string) string {
	namespace, _, _ := strings.Cut(name, "/")
	return namespace
}

// uses records that jobs may use copies.
func (s *Secrets) uses(jobs ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known.using == nil {
		s.known.using = map[string]bool{}
	}
	for _, job := range jobs {
		s.known.using[job] = true
	}
}

// unused reports whether a job is known to use no copies.
func (s *Secrets) unused(job string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.known.using[job]
}

// released records that a job uses no copies any more.
func (s *Secrets) released(job string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known.using, job)
}

// count records how many copies the sources of a namespace have.
func (s *Secrets) count(namespace string, number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known.number == nil {
		s.known.number = map[string]int{}
	}
	s.known.number[namespace] = number
	if number == 0 {
		delete(s.known.number, namespace)
	}
	if s.Copies != nil {
		all := 0
		for _, number := range s.known.number {
			all += number
		}
		s.Copies.Set(float64(all))
	}
}

// learn lists all copies, once. Those that were made by others, or by an earlier release, get the label by which
// those of one namespace are listed from then on. Jobs that are gone leave them, and those that nobody uses are deleted.
// If one cannot be changed, or a job not be looked up, it returns all of them, and tries again the next time: one copy does
// not hold up all jobs.
func (s *Secrets) learn(ctx context.Context) (all []metav1.PartialObjectMetadata, err error) {
	s.learning.Lock()
	defer s.learning.Unlock()
	if s.learnt {
		return nil, nil
	}

	if all, err = s.list(ctx); err != nil {
		return nil, err
	}

	all = slices.DeleteFunc(all, func(secret metav1.PartialObjectMetadata) bool {
		source := secret.Annotations[pub.SecretSource]
		return source == "" || len(validation.IsDNS1123Label(namespaceOf(source))) > 0
	})
	w := s.For("")
	failed := w.Each(ctx, len(all), func(i int) error {
		secret, namespace := &all[i], namespaceOf(all[i].Annotations[pub.SecretSource])
		if secret.Labels[pub.SecretCopyOf] == namespace {
			return nil
		}
		labels := map[string]any{"labels": map[string]any{pub.SecretCopyOf: namespace}}
		updated, err := reconcile.Merge(ctx, w, secret, labels, nil, "")
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("labelling copy %s of a pull secret: %w", secret.Name, err)
		} else if err == nil {
			secret.ResourceVersion = updated.ResourceVersion
		}
		return nil
	})
	gone, errs := s.gone(ctx, all)
	of := map[string][]metav1.PartialObjectMetadata{}
	for i := range all {
		s.uses(slices.DeleteFunc(users(&all[i]), gone)...)
		namespace := namespaceOf(all[i].Annotations[pub.SecretSource])
		of[namespace] = append(of[namespace], all[i])
	}
	for namespace, copies := range of {
		errs = append(errs, s.release(ctx, namespace, copies, gone, nil))
	}

	if err := errors.Join(append(failed, errs...)...); err != nil {
		log.FromContext(ctx).Error(err, "All copies of pull secrets are listed again, because some could not be brought up to date")
		return all, nil
	}
	s.learnt = true
	return nil, nil
}

// gone tells which jobs in the references of copies do not exist: somebody may have taken their finalizers off while no
// manager ran. The cache may lack a job that was created just now, so only the API server knows.
func (s *Secrets) gone(ctx context.Context, all []metav1.PartialObjectMetadata) (func(job string) bool, []error) {
	key := func(job string) types.NamespacedName {
		namespace, name, _ := strings.Cut(job, "/")
		return types.NamespacedName{Namespace: namespace, Name: name}
	}
	var jobs []string
	for i := range all {
		jobs = append(jobs, users(&all[i])...)
	}
	slices.Sort(jobs)
	jobs = slices.DeleteFunc(slices.Compact(jobs), func(job string) bool {
		return len(validation.IsDNS1123Subdomain(key(job).Name)) > 0 || // no job has the name: somebody else wrote it
			s.Client.Get(ctx, key(job), &appsv1beta1.ImagePullJob{}, client.UnsafeDisableDeepCopy) == nil
	})
	missing := make([]bool, len(jobs))
	errs := s.For("").Each(ctx, len(jobs), func(i int) error {
		found := &metav1.PartialObjectMetadata{}
		found.SetGroupVersionKind(appsv1beta1.GroupVersion.WithKind(imagepull.JobKind))
		err := s.Live.Get(ctx, key(jobs[i]), found)
		if missing[i] = apierrors.IsNotFound(err); err != nil && !missing[i] {
			return fmt.Errorf("looking up job %s, which uses a copy of a pull secret: %w", jobs[i], err)
		}
		return nil
	})
	return func(job string) bool {
		i, found := slices.BinarySearch(jobs, job)
		return found && missing[i]
	}, errs
}

// start learns of the copies when the manager leads, and not only when a job ends or uses one: if no job is left, nobody else
// deletes what is left of them.
func (s *Secrets) start(ctx context.Context) error {
	if _, err := s.learn(ctx); err != nil {
		log.FromContext(ctx).Info("Copies of pull secrets are listed later", "error", err.Error())
	}
	return nil
}

// learnAgain lets all copies be listed once more, because one lacks its label: an earlier release has made it just now, or
// somebody has taken the label off.
func (s *Secrets) learnAgain() {
	s.learning.Lock()
	defer s.learning.Unlock()
	s.learnt = false
}

// of lists the copies of the secrets of a namespace.
func (s *Secrets) of(ctx context.Context, namespace string) ([]metav1.PartialObjectMetadata, error) {
	all, err := s.learn(ctx)
	if err != nil || all != nil {
		return slices.DeleteFunc(all, func(secret metav1.PartialObjectMetadata) bool {
			return namespaceOf(secret.Annotations[pub.SecretSource]) != namespace
		}), err
	}
	return s.list(ctx, client.MatchingLabels{pub.SecretCopyOf: namespace})
}

// list lists secrets in the namespace of the copies without their data: those of one tenant may exceed the
// memory of a manager.
func (s *Secrets) list(
	ctx context.Context, options ...client.ListOption,
) ([]metav1.PartialObjectMetadata, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := s.Live.List(ctx, &list, append(options, client.InNamespace(s.Namespace))...); err != nil {
		return nil, fmt.Errorf("listing copies of pull secrets in namespace %s: %w", s.Namespace, err)
	}
	for i := range list.Items {
		list.Items[i].SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret")) // needed for writes
	}
	return list.Items, nil
}
