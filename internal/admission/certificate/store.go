package certificate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/admission/configuration"
)

// store stores the material. save must fail with configuration.ErrLostRace if it was changed since load returned version.
type store interface {
	load(ctx context.Context) (m material, version *corev1.Secret, err error)
	save(ctx context.Context, m material, version *corev1.Secret) error
}

// secretStore stores the material in a Secret.
type secretStore struct {
	client client.Client
	name   types.NamespacedName
}

func (s *secretStore) load(ctx context.Context) (material, *corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := s.client.Get(ctx, s.name, secret)
	if apierrors.IsNotFound(err) {
		return material{}, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading Secret %s: %w", s.name, err)
	}
	return material(secret.Data), secret, nil
}

func (s *secretStore) save(ctx context.Context, m material, version *corev1.Secret) error {
	var err error
	if version == nil {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: s.name.Name},
			Data:       m,
		}
		err = s.client.Create(ctx, secret)
	} else {
		secret := version.DeepCopy() // with its resourceVersion
		secret.Data = m
		err = s.client.Update(ctx, secret)
	}

	switch {
	case apierrors.IsAlreadyExists(err), apierrors.IsConflict(err), version != nil &&
		apierrors.IsNotFound(err):
		return configuration.ErrLostRace
	case err != nil:
		return fmt.Errorf("writing Secret %s: %w", s.name, err)
	}

	return nil
}

// directoryStore stores the material in files.
type directoryStore struct{ dir string }

func (s *directoryStore) load(context.Context) (material, *corev1.Secret, error) {
	m := material{}
	for _, key := range []string{
		keyCAKey, keyCACert, keyKey, keyCert, keyTLSKey, keyTLSCert, keyNextCAKey, keyNextCA, keyNextSince,
		keyPreviousCA, keyPreviousSince,
	} {
		data, err := os.ReadFile(filepath.Join(s.dir, key))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, fmt.Errorf("reading certificates: %w", err)
		}
		m[key] = data
	}
	return m, nil, nil
}

func (s *directoryStore) save(_ context.Context, m material, _ *corev1.Secret) error {
	for _, key := range []string{keyNextCAKey, keyNextCA, keyNextSince, keyPreviousCA, keyPreviousSince} {
		if _, ok := m[key]; ok {
			continue
		}
		if err := os.Remove(filepath.Join(s.dir, key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing an old authority: %w", err)
		}
	}
	return writeFiles(s.dir, m)
}

// servedFiles returns the files in the directory of a replica. They do not include the private keys of the
// CAs.
func servedFiles(m material) map[string][]byte {
	return map[string][]byte{
		keyCACert:  m[keyCACert],
		keyKey:     m[keyKey],
		keyCert:    m[keyCert],
		keyTLSKey:  m[keyTLSKey],
		keyTLSCert: m[keyTLSCert],
	}
}

// writeFiles writes the files that differ, each atomically and readable only by its owner. Keys come before
// their certificates: the server watches for a change of both.
func writeFiles(dir string, files map[string][]byte) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making the certificate directory: %w", err)
	}

	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}

	slices.Sort(names)
	slices.Reverse(names) // tls.key before tls.crt, key.pem before cert.pem
	for _, name := range names {
		if err := writeFile(filepath.Join(dir, name), files[name]); err != nil {
			return fmt.Errorf("writing certificates: %w", err)
		}
	}

	return nil
}

func writeFile(path string, data []byte) (err error) {
	if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, data) {
		if info, err := os.Stat(path); err == nil && info.Mode().Perm() == 0o600 {
			return nil
		}
	}

	temporary, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}

	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temporary.Name()))
		}
	}()
	_, err = temporary.Write(data)
	if err = errors.Join(err, temporary.Close()); err != nil {
		return err
	}

	return os.Rename(temporary.Name(), path)
}
