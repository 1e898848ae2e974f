;;; starpipe for GNU Guix.  StarPU comes from the channel Guix-HPC (see packaging/README.md).
;;;
;;;   guix build -f packaging/guix/starpipe.scm --with-source=starpipe=starpipe-0.2.0.tar.gz

(define-module (starpipe)
  #:use-module (gnu packages check)
  #:use-module (gnu packages digest)
  #:use-module (gnu packages maths)
  #:use-module (gnu packages mpi)
  #:use-module (gnu packages pcre)
  #:use-module (gnu packages pkg-config)
  #:use-module (gnu packages python)
  #:use-module (gnu packages textutils)
  #:use-module (gnu packages web)
  #:use-module (guix base16)
  #:use-module (guix build-system gnu)
  #:use-module (guix download)
  #:use-module (guix gexp)
  #:use-module ((guix licenses) #:prefix license:)
  #:use-module (guix packages)
  #:use-module (inria storm))

(define-public starpipe
  (package
    (name "starpipe")
    (version "0.2.0")
    (source
     (origin
       (method url-fetch)
       (uri (string-append "https://example.org/starpipe/starpipe-" version
                           ".tar.gz"))
       (sha256
        (base16-string->bytevector
         "0000000000000000000000000000000000000000000000000000000000000000"))))
    (build-system gnu-build-system)
    (arguments
     (list
      #:configure-flags
      #~(list "--with-mpi=yes" "--with-cuda=no" "--with-nccl=no"
              "--with-simgrid=no" "--with-tokenizer=yes" "--with-gemm=cblas")
      #:test-target "check-packaged"
      #:phases
      #~(modify-phases %standard-phases
          (add-before 'check 'mpi-setup
            #$%openmpi-setup))))
    (native-inputs
     (list cmocka pkg-config python-minimal))
    (inputs
     (list `(,hwloc "lib")
           jansson
           openblas
           openmpi
           pcre2
           starpu
           utf8proc
           xxhash))
    (home-page "https://example.org/starpipe")
    (synopsis "Train language models on long sequences in pipeline stages")
    (description
     "starpipe trains GPTs on long sequences in pipeline stages, with published
schedules, on one machine or a cluster.  It draws a schedule, trains with it,
and says where the time of a step went.  Tasks run on StarPU.")
    (license license:bsd-3)))

starpipe
